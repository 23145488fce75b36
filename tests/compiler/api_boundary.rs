//! The API boundary: the public items of a build with default features are those of users. The test
//! reads the sources, because test builds enable the feature `testing`.

use super::tidy::{code, files, root};

/// The modules and re-exports that a file declares public in a build with default features, by
/// name and in order of the alphabet.
fn public_items(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let mut public = Vec::new();
    let mut attributes = String::new();
    for item in code(&text).split_inclusive([';', ']', '}']).map(str::trim) {
        if item.starts_with("#[") {
            attributes += item;
            continue;
        }
        let hidden = ["feature = \"testing\"", "doctest"].iter().any(|f| attributes.contains(f));
        if let Some(path) = item.strip_prefix("pub mod ").or(item.strip_prefix("pub use "))
            && !hidden
        {
            let path = path.trim_end_matches([';', '}']);
            let names = path.rsplit(['{', ':']).next().unwrap_or_default();
            public.extend(names.split(',').map(|n| n.trim().to_string()).filter(|n| !n.is_empty()));
        }
        attributes.clear();
    }
    public.sort();
    public
}

/// The macros that the front page lists: those that are exported and not hidden.
fn public_macros() -> Vec<String> {
    let mut names = Vec::new();
    for (_, text) in files("src", &["rs"]) {
        for (at, _) in text.match_indices("#[macro_export]") {
            let (head, rest) = text[at..].split_once("macro_rules! ").expect("a macro");
            let name = rest.split(' ').next().unwrap_or_default();
            if !head.contains("doc(hidden)") {
                names.push(name.to_string());
            }
        }
    }
    names.sort();
    names
}

/// The public items of a build with default features are those of users.
#[test]
fn only_the_user_api_is_public() {
    assert_eq!(
        public_items("src/lib.rs"),
        [
            "DType",
            "Device",
            "Error",
            "Jit",
            "Result",
            "SymInt",
            "Tensor",
            "Variable",
            "autocast",
            "checkpoint",
            "compiler",
            "device",
            "dtype",
            "io",
            "nn",
            "no_autocast",
            "no_grad",
            "profile",
            "tensor",
        ]
    );
    assert_eq!(public_macros(), ["seq"]);
    assert_eq!(
        public_items("src/device/mod.rs"),
        [
            "Counters",
            "Device",
            "DeviceMemory",
            "clear_cache",
            "counters",
            "profile",
            "reset_counters"
        ]
    );
    assert_eq!(
        public_items("src/dtype/mod.rs"),
        ["Const", "Element", "F8E4M3", "F8E5M2", "promote"]
    );
}
