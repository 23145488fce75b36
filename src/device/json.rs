//! As much of JSON as the header of a safetensors file needs, read in one pass: no tree is built,
//! so what is skipped takes no memory, and a name that stands twice in an object is an error. Texts
//! of what is written as JSON are quoted here too.

use rustc_hash::FxHashSet;

/// Lists and objects inside each other that are skipped at most.
const MOST_DEPTH: usize = 128;

/// A place in a text. Every method reads one value, with the space around it, or says what is wrong
/// and where.
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Reader<'a> {
        Reader { text, at: 0 }
    }

    pub(crate) fn wrong<T>(&self, msg: impl std::fmt::Display) -> Result<T, String> {
        Err(format!("byte {}: {msg}", self.at))
    }

    /// The next byte that is not space, which stays unread.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += there as usize;
        there
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), String> {
        if self.take(byte) { Ok(()) } else { self.wrong(format!("{what} is expected")) }
    }

    /// Nothing but space is left.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        if self.peek().is_none() { Ok(()) } else { self.wrong("the end is expected") }
    }

    /// An object: `each` is given every name, and reads its value.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(&mut Self, String) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(b'{', "an object")?;
        let mut seen = FxHashSet::default();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let name = self.string()?;
            if !seen.insert(name.clone()) {
                return self.wrong(format!("the name {name:?} is there twice"));
            }
            self.expect(b':', "a colon")?;
            each(self, name)?;
            if !self.take(b',') {
                return self.expect(b'}', "a comma or the end of the object");
            }
        }
    }

    /// A list: `each` reads every value.
    pub(crate) fn list(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(b'[', "a list")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            each(self)?;
            if !self.take(b',') {
                return self.expect(b']', "a comma or the end of the list");
            }
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&mut self) -> Result<u64, String> {
        self.peek();
        let rest = &self.text[self.at..];
        let digits = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
        let more = rest[digits.len()..].starts_with(['.', 'e', 'E']);
        let zeros = digits.len() > 1 && digits.starts_with('0');
        match digits.parse() {
            Ok(n) if !more && !zeros => {
                self.at += digits.len();
                Ok(n)
            }
            _ => self.wrong("a whole number of at most 64 bits is expected"),
        }
    }

    /// A string without its escapes.
    pub(crate) fn string(&mut self) -> Result<String, String> {
        self.expect(b'"', "a string")?;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.bytes().take_while(|b| !matches!(b, b'"' | b'\\' | 0..=31)).count();
            // What stops the run is ASCII, so both parts are whole characters.
            out.push_str(&rest[..plain]);
            self.at += plain;
            match rest.as_bytes().get(plain) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escaped()?);
                }
                _ => return self.wrong("the string does not end on its line"),
            }
        }
    }

    /// What stands behind a backslash.
    fn escaped(&mut self) -> Result<char, String> {
        let kind = self.text.as_bytes().get(self.at).copied();
        self.at += kind.is_some_and(|b| b.is_ascii()) as usize;
        Ok(match kind {
            Some(c @ (b'"' | b'\\' | b'/')) => c.into(),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let mut units = vec![self.hex()?];
                // Past the first 65536 characters one is two units.
                if (0xd800..0xdc00).contains(&units[0]) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    units.push(self.hex()?);
                }
                match String::from_utf16(&units)
                    .ok()
                    .and_then(|s| s.chars().next().filter(|c| c.len_utf16() == units.len()))
                {
                    Some(c) => c,
                    None => return self.wrong("half a character"),
                }
            }
            _ => return self.wrong("an unknown escape"),
        })
    }

    fn hex(&mut self) -> Result<u16, String> {
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(digits) = digits else {
            return self.wrong("four hexadecimal digits are expected");
        };
        self.at += 4;
        u16::from_str_radix(digits, 16).map_err(|e| e.to_string())
    }

    /// Any value, which is of no interest.
    pub(crate) fn skip(&mut self) -> Result<(), String> {
        self.skip_inside(0)
    }

    fn skip_inside(&mut self, depth: usize) -> Result<(), String> {
        if depth > MOST_DEPTH {
            return self.wrong(format!("more than {MOST_DEPTH} values inside each other"));
        }
        match self.peek() {
            Some(b'{') => self.object(|r, _| r.skip_inside(depth + 1)),
            Some(b'[') => self.list(|r| r.skip_inside(depth + 1)),
            Some(b'"') => self.string().map(drop),
            _ => {
                let rest = &self.text[self.at..];
                let word = &rest[..rest
                    .bytes()
                    .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
                    .count()];
                let number = word.starts_with(|c: char| c.is_ascii_digit() || c == '-')
                    && word.parse::<f64>().is_ok();
                if !number && !matches!(word, "true" | "false" | "null") {
                    return self.wrong("a value is expected");
                }
                self.at += word.len();
                Ok(())
            }
        }
    }
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_they_were_written() {
        for text in ["", "a b", "\"\\/\n\r\t\u{8}\u{c}\u{1}", "ü 日 😀"] {
            assert_eq!(Reader::new(&quoted(text)).string().unwrap(), text);
        }
        let read = |s: &str| Reader::new(s).string();
        assert_eq!(read(r#" "\u00fc\ud83d\ude00\/\b\f" "#).unwrap(), "ü😀/\u{8}\u{c}");
        for bad in [
            r#""\ud83d""#,
            r#""\ude00\ud83d""#,
            r#""\ud83dx""#,
            r#""\ud83d\u0041""#,
            r#""\u12""#,
            r#""\u+123""#,
            r#""\x""#,
            "\"\\ü\"",
            "\"a",
            "\"a\nb\"",
            "\"\\",
            "a",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_whole_and_fit() {
        let read = |s: &str| Reader::new(s).number();
        assert_eq!((read(" 0"), read("18446744073709551615")), (Ok(0), Ok(u64::MAX)));
        for bad in ["-1", "1.0", "1e3", "01", "18446744073709551616", "", "x", "+1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn anything_valid_can_be_skipped_and_nothing_else() {
        let skip = |s: &str| {
            let mut r = Reader::new(s);
            r.skip().and_then(|()| r.end())
        };
        for good in ["{}", " [1, -2.5e+3 , true,false, null, \"x\"] ", r#"{"a":{"b":[[]]},"c":0}"#]
        {
            assert_eq!(skip(good), Ok(()), "{good}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for bad in [
            "",
            "{",
            "[1,]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a:1}",
            r#"{"a":1,"a":2}"#,
            "nul",
            "NaN",
            "-",
            "1 2",
            &deep,
        ] {
            assert!(skip(bad).is_err(), "{bad:.20}");
        }
    }
}
