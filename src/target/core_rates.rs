//! Rates of CPU cores by microarchitecture: instructions per cycle, latencies, bandwidth of the
//! caches.
//! In: vendor, family and model as CPUID reports them, and the width of vectors. Out: the rates of
//! that width. A core that is not in the table has the rates of [`CoreRates::DEFAULT`].
//!
//! Bandwidths without a measurement beside them are estimates.
//!
//! A table and not a measurement at start: a measured value differs between processes, and with it
//! the program of a kernel.

/// Rates of a core of a CPU for vectors of one width; 0 stands for unknown, as on GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoreRates {
    /// Fused multiply-adds of vectors per cycle.
    pub fmas: f64,
    /// Loads of vectors per cycle.
    pub loads: f64,
    /// Stores of vectors per cycle.
    pub stores: f64,
    /// Shuffles of lanes per cycle.
    pub shuffles: f64,
    /// Cycles of an addition of floats.
    pub add_latency: u32,
    /// Cycles of a fused multiply-add.
    pub fma_latency: u32,
    /// Cycles of a load of a vector from L1.
    pub load_latency: u32,
    /// Cycles of a shuffle that moves lanes between parts of 16 bytes.
    pub shuffle_latency: u32,
    /// Bytes per cycle that a core reads from L2, from L3, and from memory, if all cores read.
    pub cycle_bytes: [f64; 3],
}

/// Manufacturer of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Processors of Intel.
    Intel,
    /// Processors of AMD.
    Amd,
    /// All other processors.
    Other,
}

/// The rates of a microarchitecture.
struct Microarchitecture {
    vendor: Vendor,
    family: u32,
    /// Ranges of models; none stands for all others of the family.
    models: &'static [[u32; 2]],
    /// With vectors of 64 bytes. A core without AVX-512 has those of 32.
    wide: CoreRates,
    /// With vectors of 32 bytes or fewer.
    narrow: CoreRates,
}

/// Instructions per cycle, then latencies, then bytes per cycle.
const fn rates(per_cycle: [f64; 4], latency: [u32; 4], cycle_bytes: [f64; 3]) -> CoreRates {
    let ([fmas, loads, stores, shuffles], [add, fma, load, shuffle]) = (per_cycle, latency);
    CoreRates {
        fmas,
        loads,
        stores,
        shuffles,
        add_latency: add,
        fma_latency: fma,
        load_latency: load,
        shuffle_latency: shuffle,
        cycle_bytes,
    }
}

/// Skylake to Cascade Lake servers. Two units for vectors of 64 bytes, one of which is port 5, that
/// also shuffles.
const SKYLAKE_SERVER: Microarchitecture = Microarchitecture {
    vendor: Vendor::Intel,
    family: 6,
    models: &[[85, 85]],
    wide: rates([2.0, 2.0, 1.0, 1.0], [4, 4, 7, 3], [48.0, 8.0, 5.0]),
    narrow: rates([2.0, 2.0, 1.0, 1.0], [4, 4, 7, 3], [32.0, 8.0, 5.0]),
};

/// Ice Lake servers. L3 and memory were measured on two cores at 2.8 GHz: 60 and 30 GB/s.
const ICE_LAKE_SERVER: Microarchitecture = Microarchitecture {
    models: &[[106, 106], [108, 108]],
    wide: rates([2.0, 2.0, 1.0, 1.0], [4, 4, 7, 3], [48.0, 10.7, 5.3]),
    narrow: rates([2.0, 2.0, 2.0, 1.0], [4, 4, 7, 3], [40.0, 10.7, 5.3]),
    ..SKYLAKE_SERVER
};

/// Sapphire Rapids to Granite Rapids. Memory was measured on two cores of an Emerald Rapids server:
/// 53 to 62 GB/s.
const SAPPHIRE_RAPIDS: Microarchitecture = Microarchitecture {
    models: &[[143, 143], [173, 174], [207, 207]],
    wide: rates([2.0, 2.0, 1.0, 1.0], [3, 4, 7, 3], [48.0, 13.0, 10.0]),
    narrow: rates([2.0, 3.0, 2.0, 2.0], [3, 4, 7, 3], [40.0, 13.0, 10.0]),
    ..SKYLAKE_SERVER
};

/// Haswell and Broadwell.
const HASWELL: Microarchitecture = Microarchitecture {
    models: &[[60, 61], [63, 63], [69, 71], [79, 79], [86, 86]],
    wide: rates([2.0, 2.0, 1.0, 1.0], [3, 5, 6, 3], [25.0, 10.0, 5.0]),
    narrow: rates([2.0, 2.0, 1.0, 1.0], [3, 5, 6, 3], [25.0, 10.0, 5.0]),
    ..SKYLAKE_SERVER
};

/// Skylake to Comet Lake clients.
const SKYLAKE_CLIENT: Microarchitecture = Microarchitecture {
    models: &[[78, 78], [94, 94], [142, 142], [158, 158], [165, 166]],
    wide: rates([1.0, 2.0, 1.0, 1.0], [4, 4, 7, 3], [32.0, 16.0, 6.0]),
    narrow: rates([2.0, 2.0, 1.0, 1.0], [4, 4, 7, 3], [32.0, 16.0, 6.0]),
    ..SKYLAKE_SERVER
};

/// Performance cores of Alder Lake and later clients.
const ALDER_LAKE: Microarchitecture = Microarchitecture {
    models: &[[151, 151], [154, 154], [170, 172], [183, 183], [186, 186], [191, 191]],
    wide: rates([2.0, 2.0, 1.0, 1.0], [3, 4, 7, 3], [48.0, 16.0, 8.0]),
    narrow: rates([2.0, 3.0, 2.0, 2.0], [3, 4, 7, 3], [48.0, 16.0, 8.0]),
    ..SKYLAKE_SERVER
};

/// Zen and Zen 2, whose family has no AVX-512. Zen has half of these rates for 32 bytes.
const ZEN_2: Microarchitecture = Microarchitecture {
    vendor: Vendor::Amd,
    family: 0x17,
    models: &[],
    wide: rates([2.0, 2.0, 1.0, 2.0], [3, 5, 7, 3], [32.0, 16.0, 6.0]),
    narrow: rates([2.0, 2.0, 1.0, 2.0], [3, 5, 7, 3], [32.0, 16.0, 6.0]),
};

/// Zen 3.
const ZEN_3: Microarchitecture = Microarchitecture {
    family: 0x19,
    models: &[[0x00, 0x0f], [0x20, 0x5f]],
    wide: rates([2.0, 2.0, 1.0, 2.0], [3, 4, 7, 3], [32.0, 20.0, 7.0]),
    narrow: rates([2.0, 2.0, 1.0, 2.0], [3, 4, 7, 3], [32.0, 20.0, 7.0]),
    ..ZEN_2
};

/// Zen 4: an instruction on 64 bytes takes its unit for two cycles. L3 and memory were measured on
/// two cores at 3.7 GHz: 191 and 82 GB/s.
const ZEN_4: Microarchitecture = Microarchitecture {
    family: 0x19,
    models: &[],
    wide: rates([1.0, 1.0, 0.5, 1.0], [3, 4, 7, 4], [32.0, 26.0, 11.0]),
    narrow: rates([2.0, 2.0, 1.0, 2.0], [3, 4, 7, 3], [32.0, 26.0, 11.0]),
    ..ZEN_2
};

/// Zen 5 with a full data path for 64 bytes.
const ZEN_5: Microarchitecture = Microarchitecture {
    family: 0x1a,
    wide: rates([2.0, 2.0, 1.0, 2.0], [3, 4, 7, 3], [64.0, 26.0, 11.0]),
    narrow: rates([2.0, 2.0, 2.0, 2.0], [3, 4, 7, 3], [32.0, 26.0, 11.0]),
    ..ZEN_2
};

/// The table. The first row that fits counts.
const TABLE: &[&Microarchitecture] = &[
    &SKYLAKE_SERVER,
    &ICE_LAKE_SERVER,
    &SAPPHIRE_RAPIDS,
    &HASWELL,
    &SKYLAKE_CLIENT,
    &ALDER_LAKE,
    &ZEN_2,
    &ZEN_3,
    &ZEN_4,
    &ZEN_5,
];

impl CoreRates {
    /// No rates, as of a GPU.
    pub const UNKNOWN: CoreRates = rates([0.0; 4], [0; 4], [0.0; 3]);

    /// The rates of a core that is not in the table, and of targets without a device: those of an
    /// Ice Lake server.
    pub const DEFAULT: [CoreRates; 2] = [ICE_LAKE_SERVER.wide, ICE_LAKE_SERVER.narrow];

    /// Returns the default rates for vectors of this size.
    pub const fn of_vectors(vector_bytes: usize) -> CoreRates {
        let [wide, narrow] = CoreRates::DEFAULT;
        if vector_bytes >= 64 { wide } else { narrow }
    }

    /// Returns the rates of a microarchitecture for vectors of this size.
    pub fn find(vendor: Vendor, family: u32, model: u32, vector_bytes: usize) -> CoreRates {
        let fits = |m: &&&Microarchitecture| {
            let is_model = |[from, to]: &[u32; 2]| (*from..=*to).contains(&model);
            let has_model = m.models.is_empty() || m.models.iter().any(is_model);
            m.vendor == vendor && m.family == family && has_model
        };
        match TABLE.iter().find(fits) {
            Some(m) if vector_bytes >= 64 => m.wide,
            Some(m) => m.narrow,
            None => CoreRates::of_vectors(vector_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_model_and_vectors() {
        let zen4 = |bytes| CoreRates::find(Vendor::Amd, 0x19, 0x11, bytes);
        assert_eq!((zen4(64).fmas, zen4(32).fmas, zen4(64).stores), (1.0, 2.0, 0.5));
        let zen3 = CoreRates::find(Vendor::Amd, 0x19, 0x21, 32);
        assert_eq!((zen3, zen3 == zen4(32)), (ZEN_3.narrow, false));
        let ice_lake = CoreRates::find(Vendor::Intel, 6, 106, 64);
        assert_eq!((ice_lake.fmas, ice_lake.shuffles), (2.0, 1.0));
        assert_eq!(CoreRates::find(Vendor::Intel, 6, 207, 64), SAPPHIRE_RAPIDS.wide);
    }

    #[test]
    fn unknown_cores_have_the_default() {
        for (vendor, family) in [(Vendor::Other, 6), (Vendor::Intel, 99), (Vendor::Amd, 6)] {
            for bytes in [16, 32, 64] {
                let found = CoreRates::find(vendor, family, 1, bytes);
                assert_eq!(found, CoreRates::of_vectors(bytes), "{vendor:?} {family}");
            }
        }
    }

    #[test]
    fn every_rate_of_the_table_is_known() {
        for m in TABLE {
            for r in [m.wide, m.narrow] {
                let all = [r.fmas, r.loads, r.stores, r.shuffles];
                assert!(all.into_iter().chain(r.cycle_bytes).all(|x| x > 0.0));
                let latencies = [r.add_latency, r.fma_latency, r.load_latency, r.shuffle_latency];
                assert!(latencies.into_iter().all(|n| n > 0));
                assert!(
                    r.cycle_bytes[0] >= r.cycle_bytes[1] && r.cycle_bytes[1] >= r.cycle_bytes[2]
                );
            }
        }
    }
}
