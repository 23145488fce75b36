//! Retired phrases and identifiers do not return: prose and code use the terms of
//! `docs/glossary.md`.

use super::tidy::{documents, sources};

/// Phrases that comments and docs do not use, and the term to use instead.
const PHRASES: &[(&str, &str)] = &[
    ("values between", "intermediates"),
    ("turn ahead", "prefetch"),
    ("so many", "the number itself"),
    ("anew", "again"),
    ("of the user's", "custom"),
    ("at one time", "simultaneously live, or peak memory"),
    ("at the most", "at most"),
    ("side by side", "adjacent, or in parallel"),
    ("near memory", "shared memory"),
    ("lies as one", "allocated at its upper bound"),
    ("the greatest size", "upper bound"),
    ("takes over", "donated buffer"),
    ("take over", "donated buffer"),
    ("written down", "recorded, or captured"),
    ("writes down", "records, or captures"),
    ("told apart", "distinguished"),
    ("came to grief", "failed"),
    ("to be had", "available"),
    ("by way of", "through"),
    ("drawn digits", "synthetic digits"),
    ("drawn shapes", "synthetic shapes"),
    ("what nobody", "what nothing"),
    ("what it holds", "its contents"),
    ("house is in order", "repository checks"),
    ("the most that", "the maximum"),
    ("most buffers", "the maximum number of buffers"),
    ("some ten", "about ten"),
    ("one in place of", "instead of"),
    ("not ours", "the owner"),
    ("of ours", "the owner"),
    ("the way in which", "how, or the policy"),
    ("beside a zero", "an operand is zero"),
    ("tests of results", "device tests"),
    ("the store has", "the disk cache contains"),
];

/// Identifiers that code does not use, and their replacements.
const IDENTIFIERS: &[(&str, &str)] = &[
    ("DefineLocal", "DefineShared"),
    ("local_bytes", "shared_bytes"),
    ("StagedAhead", "LoadHint"),
    ("TakeOver", "InPlace"),
    ("take_over", "donate_buffers"),
    ("TapeMemory", "PlannedMemory"),
    ("share_reduces", "group_reduce"),
    ("name_positions", "launch_dims"),
    ("load_ahead", "prefetch"),
    ("until_started", "host_us"),
    ("was_kept", "from_cache"),
    ("from_store", "from_cache"),
    ("Choice", "OptPolicy"),
    ("with_choice", "with_opt_policy"),
    ("Choose", "SetupOpts"),
    ("Fate", "FirstRun"),
    ("hopeless", "second_run_limit"),
    ("PATIENCE", "MIN_FIRST_RUN_LIMIT"),
    ("FAR_SLOWER", "RETIME_RATIO"),
    ("GAVE_UP", "REJECTED"),
    ("Way", "TensorCoreMapping"),
    ("MOST_DEMANDS", "MAX_USES"),
    ("MOST_EVALUATIONS", "MAX_EVALUATIONS"),
    ("MOST_MERGED_BUFFERS", "MAX_MERGED_BUFFERS"),
    ("MOST_MERGED_NODES", "MAX_MERGED_NODES"),
    ("MOST_COPIES", "MAX_COPIES"),
    ("TRIED", "MAX_CANDIDATES"),
    ("EFFORT", "MAX_COMPARISONS"),
    ("define_alike", "define_at_all_uses"),
    ("computed_under", "nearest_buffers"),
    ("demand_at", "add_use_at"),
    ("is_too_much", "must_store"),
    ("writer_in_step", "elementwise_writer"),
    ("reads_in_step", "reads_elementwise"),
    ("in_step", "elementwise"),
    ("brought", "copied_to"),
    ("is_spared", "is_skipped"),
    ("is_one_turn", "has_one_quotient"),
    ("LOOKED_AT", "STEPS_PER_READ"),
    ("AT_A_TIME", "PARALLEL_BINARIES"),
];

/// The blocks of consecutive comment lines of a source file: line number, marker and joined text.
fn comments(text: &str) -> Vec<(usize, &str, String)> {
    let mut blocks: Vec<(usize, &str, String)> = Vec::new();
    let mut last = 0;
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(marker) = ["///", "//!", "//"].into_iter().find(|m| line.starts_with(m)) else {
            continue;
        };
        let body = line[marker.len()..].trim();
        match blocks.last_mut() {
            Some((_, m, joined)) if *m == marker && last == i && !body.is_empty() => {
                joined.push(' ');
                joined.push_str(body);
            }
            _ => blocks.push((i + 1, marker, body.to_string())),
        }
        last = i + 1;
    }
    blocks
}

/// The paragraphs of a Markdown page outside code blocks.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut fenced, mut open) = (false, false);
    for (i, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced || line.trim().is_empty() {
            open = false;
        } else if open {
            let (_, joined) = found.last_mut().expect("a paragraph is open");
            joined.push(' ');
            joined.push_str(line.trim());
        } else {
            found.push((i + 1, line.trim().to_string()));
            open = true;
        }
    }
    found
}

/// True if the text has the phrase as whole words, in any case.
fn has(text: &str, phrase: &str) -> bool {
    let text = text.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(phrase).any(|(at, _)| {
        !text[..at].ends_with(is_word) && !text[at + phrase.len()..].starts_with(is_word)
    })
}

#[test]
fn retired_phrases_do_not_return() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for (line, _, comment) in comments(&text) {
            for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| has(&comment, phrase)) {
                wrong.push(format!("{}:{line}: `{phrase}`: say {instead}", path.display()));
            }
        }
    }
    // The glossary lists the old names.
    let pages = documents().into_iter().filter(|(path, _)| !path.ends_with("glossary.md"));
    for (path, text) in pages {
        for (line, paragraph) in paragraphs(&text) {
            for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| has(&paragraph, phrase)) {
                wrong.push(format!("{}:{line}: `{phrase}`: say {instead}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "retired phrases:\n{}", wrong.join("\n"));
}

#[test]
fn doc_comments_are_statements() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for (line, marker, comment) in comments(&text).into_iter().filter(|(_, m, _)| *m != "//") {
            if comment.ends_with('?') {
                wrong.push(format!("{}:{line}: a question: {comment}", path.display()));
            }
            if marker == "///" && comment.ends_with('.') && !comment.contains([' ', '`']) {
                wrong.push(format!("{}:{line}: one word: {comment}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "doc comments:\n{}", wrong.join("\n"));
}

#[test]
fn retired_identifiers_do_not_return() {
    let mut wrong = Vec::new();
    let files = sources().into_iter().filter(|(path, _)| !path.ends_with("vocabulary.rs"));
    for (path, text) in files {
        for (i, line) in text.lines().enumerate() {
            for (old, new) in IDENTIFIERS.iter().filter(|(old, _)| {
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                line.match_indices(old).any(|(at, _)| {
                    !line[..at].ends_with(is_word) && !line[at + old.len()..].starts_with(is_word)
                })
            }) {
                wrong.push(format!("{}:{}: `{old}` is `{new}` now", path.display(), i + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "retired identifiers:\n{}", wrong.join("\n"));
}

#[test]
fn phrases_are_found_across_lines() {
    let source = "/// Memory of values\n/// between kernels.\nfn f() {}\n// So many.\n";
    let found = comments(source);
    assert_eq!(found.len(), 2);
    assert!(has(&found[0].2, "values between") && has(&found[1].2, "so many"));
    assert!(!has("canewood", "anew"));
    assert_eq!(paragraphs("a\nb\n\n```\ncode\n```\nc").len(), 2);
}
