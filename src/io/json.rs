//! JSON objects that are read in order, without building a tree: a skipped value takes no memory,
//! and a name that appears twice in an object is an error. `serde_json` limits the nesting depth.

use rustc_hash::FxHashSet;
use serde_core::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use std::collections::BTreeMap;
use std::fmt;

/// A reader of the fields of an object, in the order of the text.
pub(super) trait Fields<'de> {
    /// Reads the value of a field from `map`.
    fn field<A: MapAccess<'de>>(&mut self, name: String, map: &mut A) -> Result<(), A::Error>;
}

impl<'de> Fields<'de> for BTreeMap<String, String> {
    fn field<A: MapAccess<'de>>(&mut self, name: String, map: &mut A) -> Result<(), A::Error> {
        let text = map.next_value()?;
        self.insert(name, text);
        Ok(())
    }
}

/// An object that is read field by field.
pub(super) struct Object<'a, T>(pub(super) &'a mut T);

impl<'de, T: Fields<'de>> DeserializeSeed<'de> for Object<'_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, T: Fields<'de>> Visitor<'de> for Object<'_, T> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = FxHashSet::default();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format!("the name {name:?} appears twice")));
            }
            self.0.field(name, &mut map)?;
        }
        Ok(())
    }
}

/// Any value, which is checked and dropped.
pub(super) struct Ignored;

impl<'de> Fields<'de> for Ignored {
    fn field<A: MapAccess<'de>>(&mut self, _: String, map: &mut A) -> Result<(), A::Error> {
        map.next_value::<Ignored>().map(drop)
    }
}

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Ignored, D::Error> {
        from.deserialize_any(Ignored)
    }
}

impl<'de> Visitor<'de> for Ignored {
    type Value = Ignored;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Ignored, E> {
        Ok(self)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Ignored, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Ignored, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Ignored, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Ignored, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Ignored, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Ignored, A::Error> {
        while list.next_element::<Ignored>()?.is_some() {}
        Ok(self)
    }
    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<Ignored, A::Error> {
        Object(&mut self).visit_map(map)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_they_were_written() {
        let read = |text: &str| serde_json::from_str::<String>(text);
        for text in ["", "a b", "\"\\/\n\r\t\u{8}\u{c}\u{1}", "ü 日 😀"] {
            assert_eq!(read(&serde_json::Value::from(text).to_string()).unwrap(), text);
        }
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
    fn numbers_are_integers_that_fit() {
        let read = |text: &str| serde_json::from_str::<u64>(text);
        assert_eq!((read(" 0").unwrap(), read("18446744073709551615").unwrap()), (0, u64::MAX));
        for bad in ["-1", "1.0", "1e3", "01", "18446744073709551616", "", "x", "+1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn any_valid_value_can_be_ignored_and_nothing_else() {
        let skip = |text: &str| serde_json::from_str::<Ignored>(text).map(drop);
        for good in ["{}", " [1, -2.5e+3 , true,false, null, \"x\"] ", r#"{"a":{"b":[[]]},"c":0}"#]
        {
            assert!(skip(good).is_ok(), "{good}");
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
            r#"[{"a":{"b":1,"b":2}}]"#,
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
