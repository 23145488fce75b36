//! Sine, cosine and tangent of host numbers. The GNU runtime of Windows computes them by x87
//! instructions, which reduce large arguments with a short π: cos(1e30) has no correct digit. The
//! crate `libm` is used there.

#[cfg(all(windows, target_env = "gnu"))]
pub(crate) use libm::{cos, sin, tan};

#[cfg(not(all(windows, target_env = "gnu")))]
pub(crate) use system::{cos, sin, tan};

#[cfg(not(all(windows, target_env = "gnu")))]
mod system {
    /// Returns the sine.
    pub(crate) fn sin(x: f64) -> f64 {
        x.sin()
    }
    /// Returns the cosine.
    pub(crate) fn cos(x: f64) -> f64 {
        x.cos()
    }
    /// Returns the tangent.
    pub(crate) fn tan(x: f64) -> f64 {
        x.tan()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arguments_are_reduced_exactly() {
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-15, "{got} {want}");
        near(cos(1e30), -0.999_956_460_895_966_5);
        near(sin(1e22), -0.852_200_849_767_188_8);
        near(tan(1e22), -1.628_778_225_606_898_8);
    }
}
