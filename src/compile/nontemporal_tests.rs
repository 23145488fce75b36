//! Kernels with stores past the caches on buffers at every offset from a cache line.

use super::compiled;
use crate::device::{Device, Memory, MemoryRef};
use crate::ir::{UOp, parse};

/// Two million elements are in no L2.
const LEN: usize = 1 << 21;

/// Returns host memory of some bytes.
fn memory(device: &Device, bytes: usize) -> Memory {
    device.backend().allocate(bytes).unwrap()
}

fn start(memory: &Memory) -> *mut f32 {
    match memory {
        Memory::Host(host) => host.ptr().cast(),
        _ => panic!("memory of the host"),
    }
}

#[test]
fn results_do_not_depend_on_the_alignment() {
    let text = format!(
        "%0 = DefineGlobal f32 {{slot=0 len={LEN}}}\n\
         %1 = Range index {LEN}:index {{id=0 kind=Global}}\n\
         %2 = Index f32 %0, %1\n\
         %3 = DefineGlobal f32 {{slot=1 len={LEN}}}\n\
         %4 = Index f32 %3, %1\n\
         %5 = Load f32 %4\n\
         %6 = Mul f32 %5, 2.0:f32\n\
         %7 = Store void %2, %6, %1 {{nontemporal}}\n\
         %8 = Sink void %7\n"
    );
    let kernel = parse(&text).unwrap();
    for name in ["CPU:X86", "CPU:LLVM", "CPU:CLANG"] {
        let Ok(device) = Device::get(name) else { continue };
        let compiled = compiled(&kernel, &device).unwrap();
        let target = device.target();
        let is_hinted = compiled.program.uops.iter().any(UOp::is_nontemporal);
        assert_eq!(is_hinted, target.machine.nontemporal_stores && target.vector_bytes >= 64);
        let (to, from) = (memory(&device, 4 * LEN + 128), memory(&device, 4 * LEN + 128));
        for offset in 0..17 {
            // SAFETY: both buffers have LEN + 32 elements, and no one else uses them.
            let (out, x) = unsafe {
                let x = std::slice::from_raw_parts_mut(start(&from), LEN + 32);
                (0..LEN + 32).for_each(|i| x[i] = (i + offset) as f32);
                let out = std::slice::from_raw_parts_mut(start(&to), LEN + 32);
                out.fill(-1.0);
                let args = [&to, &from].map(|memory| MemoryRef { memory, offset: 4 * offset });
                compiled.executable.run(&args, &compiled.program.launch).unwrap();
                (out, x)
            };
            let inside = offset..offset + LEN;
            let wrong = (0..LEN + 32)
                .find(|i| out[*i] != if inside.contains(i) { x[*i] * 2.0 } else { -1.0 });
            assert_eq!(wrong, None, "{name} at offset {offset}");
        }
    }
}
