//! `cargo xtask readme-table`: generates the tables of measured speed in `README.md` from
//! `benches/results`. For each machine of [`TABLES`] it reads `MACHINE.json` and
//! `MACHINE.peers.json`, and replaces the text between the markers.

use crate::saved::{Results, Saved};
use std::path::Path;

/// The machines of the README, each with the figures that it shows and their labels.
const TABLES: &[(&str, &[(&str, &str)])] = &[
    (
        "nvidia-h200",
        &[
            ("gpu/relu_256m", "relu, 256 Mi elements"),
            ("gpu/gelu_256m", "gelu, 256 Mi elements"),
            ("gpu/sum_256m", "sum, 256 Mi elements"),
            ("gpu/softmax_16384x4096", "softmax, 16384×4096"),
            ("gpu/layernorm_16384x4096", "layer norm, 16384×4096"),
            ("gpu/transpose_16384", "transpose, 16384²"),
            ("gpu/gemv_bf16_4096", "matrix-vector product, bf16, 4096²"),
            ("gpu/matmul_4096", "matmul, f32, 4096"),
            ("gpu/matmul_bf16_1024", "matmul, bf16, 1024"),
            ("gpu/matmul_bf16_4096", "matmul, bf16, 4096"),
            ("gpu/conv_128x64x56_k3", "conv 3×3, f32, 128×64×56×56"),
            ("gpu/conv_f16_128x64x56_k3", "conv 3×3, f16, 128×64×56×56"),
            ("gpu/attention_bf16_4x16x4096x128", "attention, bf16, 4×16×4096×128"),
            ("jit/mnist_step_jit", "training step, conv net, captured"),
            ("jit/gpt2_decode_jit", "GPT-2 small, one token, captured"),
        ],
    ),
    (
        "amd-epyc-family-25-model-17-with-2-threads",
        &[
            ("cpu/matmul_1024", "matmul, 1024"),
            ("cpu/gemv_4096", "matrix-vector product, 4096²"),
            ("cpu/bmm_8x512x64", "8 products of 512×64 and 64×512"),
            ("cpu/fma_relu_16M", "relu(a·b + 1.5), 16 Mi elements"),
            ("cpu/gelu_4M", "gelu, 4 Mi elements"),
            ("cpu/sum_16M", "sum, 16 Mi elements"),
            ("cpu/softmax_4096x1024", "softmax, 4096×1024"),
            ("cpu/layernorm_4096x1024", "layer norm, 4096×1024"),
            ("cpu/transpose_4096", "transpose, 4096²"),
            ("cpu/conv_1x64x56_k3", "conv 3×3, 1×64×56×56"),
            ("cpu/conv_32x1x28_k5", "conv 5×5, 32×1×28×28"),
            ("cpu/gpt2_prefill64", "GPT-2 small, prefill of 64 tokens"),
            ("jit/gpt2_decode_jit", "GPT-2 small, one token, captured"),
            ("jit/mnist_step_jit", "training step, conv net, captured"),
        ],
    ),
];

/// The columns after picograd's, where a peer has a figure.
const PEERS: [&str; 4] = ["PyTorch", "JAX", "ONNX Runtime", "tinygrad"];

const BEGIN: &str = "<!-- begin: made by cargo xtask readme-table, do not edit -->\n";
const END: &str = "<!-- end -->\n";

/// Rewrites the tables of `README.md`.
pub fn run() -> Result<(), String> {
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path).map_err(|e| format!("README.md: {e}"))?;
    let new = with_tables(&readme)?;
    if new == readme {
        println!("README.md is up to date");
        return Ok(());
    }
    std::fs::write(&path, new).map_err(|e| format!("README.md: {e}"))?;
    println!("rewrote the tables of README.md");
    Ok(())
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the README with the tables of the saved results between its markers.
fn with_tables(readme: &str) -> Result<String, String> {
    let (head, rest) = readme.split_once(BEGIN).ok_or("README.md has no marker for its tables")?;
    let (_, tail) = rest.split_once(END).ok_or("README.md has no marker after its tables")?;
    let mut tables = Vec::new();
    for (machine, rows) in TABLES {
        let read = |name: String| {
            Results::read(&root().join("benches/results").join(&name))
                .map_err(|e| format!("benches/results/{name}: {e}"))
        };
        let ours = read(format!("{machine}.json"))?;
        tables.push(table(&ours, &read(format!("{machine}.peers.json"))?, rows)?);
    }
    Ok(format!("{head}{BEGIN}{}{END}{tail}", tables.join("\n")))
}

/// One table: a line with machine, date and versions, then a row per figure.
fn table(ours: &Results, peers: &Results, rows: &[(&str, &str)]) -> Result<String, String> {
    let of_peer = |peer: &str, figure: &str| {
        peers.figures.iter().find_map(|(name, saved)| {
            let (version, name) = name.split_once(": ")?;
            (version.starts_with(peer) && name == figure).then_some((version, saved))
        })
    };
    let columns: Vec<&str> = PEERS
        .into_iter()
        .filter(|peer| rows.iter().any(|(figure, _)| of_peer(peer, figure).is_some()))
        .collect();
    let mut versions = Vec::new();
    let mut body = String::new();
    for (figure, label) in rows {
        let own = ours.figures.get(*figure).ok_or(format!("no saved figure {figure}"))?;
        body += &format!("| {label} | {} | {} |", own.unit, cell(own));
        for peer in &columns {
            let found = of_peer(peer, figure);
            versions.extend(found.map(|(version, _)| version));
            body += &format!(" {} |", found.map_or("–".to_string(), |(_, saved)| cell(saved)));
        }
        body.push('\n');
    }
    versions.sort_unstable();
    versions.dedup();
    let mut dates = vec![ours.date.as_str(), peers.date.as_str()];
    dates.dedup();
    let about =
        format!("**{}**, {}\\\nwith {}", ours.machine, dates.join(" and "), versions.join(", "));
    let head = format!("| work | unit | picograd | {} |", columns.join(" | "));
    let rule = "---|".repeat(columns.len() + 3);
    Ok(format!("{about}\n\n{head}\n|{rule}\n{body}"))
}

/// Returns a value with three significant digits, and its note.
fn cell(saved: &Saved) -> String {
    let digits = (2 - saved.value.abs().log10().floor() as i32).max(0) as usize;
    let value = format!("{:.digits$}", saved.value);
    saved.note.as_ref().map_or(value.clone(), |note| format!("{value} ({note})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_tables_are_up_to_date() {
        let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
        let new = with_tables(&readme).expect("saved results");
        assert!(new == readme, "run `cargo xtask readme-table`");
    }

    #[test]
    fn cells_have_three_digits() {
        let cell = |value| cell(&Saved { value, unit: "ms".into(), note: None });
        assert_eq!([cell(0.33), cell(28.7), cell(4277.8)], ["0.330", "28.7", "4278"]);
    }
}
