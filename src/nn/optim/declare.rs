//! The declaration of update rules: from a table of settings to a struct with a constructor and a
//! builder method per setting.

/// An example in which one step of a rule lowers `x`; the setting is written behind `new(0.1)`.
macro_rules! step_example {
    ($rule:ident, $result:literal $(, $setting:expr)*) => {
        concat!(
            "use picograd::{Tensor, nn::optim::{Optimizer, ", stringify!($rule), "}};\n",
            "let x = Tensor::new([[1.0f32]]).as_param();\n",
            "let rule = ", stringify!($rule), "::new(0.1)", $($setting,)* ";\n",
            "let mut optimizer = Optimizer::new([x.clone()], rule)?;\n",
            "x.square().sum(..).backward();\n",
            "optimizer.step()?;\n",
            "assert!(x.item::<f32>()? ", $result, " 1.0);\n",
            "# Ok::<(), picograd::Error>(())",
        )
    };
}
pub(super) use step_example;

/// Declares an update rule: settings with default and example value, then flags, which are off by
/// default. `[betas]` adds the decays of the two moments.
macro_rules! rule {
    (
        $(#[$meta:meta])*
        $name:ident $([$betas:ident])? {
            $(#[$new:meta])*
            new;
            $($(#[$doc:meta])* $field:ident: $ty:ty = $default:expr, $example:literal;)*
        }
        $(flags { $($(#[$flag_doc:meta])* $flag:ident;)* })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name {
            lr: f64,
            maximize: bool,
            $($betas: (f64, f64),)?
            $($field: $ty,)*
            $($($flag: bool,)*)?
        }

        impl $name {
            $(#[$new])*
            ///
            /// ```
            #[doc = step_example!($name, "<")]
            /// ```
            pub fn new(lr: f64) -> $name {
                $name {
                    lr,
                    maximize: false,
                    $($betas: (0.9, 0.999),)?
                    $($field: $default,)*
                    $($($flag: false,)*)?
                }
            }
            /// Maximizes the objective: steps ascend the gradient.
            ///
            /// ```
            #[doc = step_example!($name, ">", ".maximize()")]
            /// ```
            pub fn maximize(self) -> $name {
                $name { maximize: true, ..self }
            }
            $(
                /// Sets the decays of the first and second moments: 0.9 and 0.999 by default.
                ///
                /// ```
                #[doc = step_example!($name, "<", ".betas(0.8, 0.95)")]
                /// ```
                pub fn $betas(self, mean: f64, square: f64) -> $name {
                    $name { $betas: (mean, square), ..self }
                }
            )?
            $(
                $(#[$doc])*
                ///
                /// ```
                #[doc = step_example!($name, "<", ".", stringify!($field), "(", $example, ")")]
                /// ```
                pub fn $field(self, $field: $ty) -> $name {
                    $name { $field, ..self }
                }
            )*
            $($(
                $(#[$flag_doc])*
                ///
                /// ```
                #[doc = step_example!($name, "<", ".", stringify!($flag), "()")]
                /// ```
                pub fn $flag(self) -> $name {
                    $name { $flag: true, ..self }
                }
            )*)?
        }
    };
}
pub(super) use rule;

/// The methods of [`Rule`](super::Rule) that return settings; with names, also its state.
macro_rules! settings_of_rule {
    ($($state:literal)+) => {
        settings_of_rule!();
        fn state(&self) -> &'static [&'static str] {
            &[$($state),+]
        }
    };
    () => {
        fn lr(&self) -> f64 {
            self.lr
        }
        fn maximizes(&self) -> bool {
            self.maximize
        }
    };
}
pub(super) use settings_of_rule;
