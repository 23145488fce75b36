//! Devices: what runs programs.

pub mod interp;
