//! stub
use super::UOp;
impl std::fmt::Debug for UOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.op(), self.dtype())
    }
}
/// x
pub fn print(r: &UOp) -> String {
    print_program(&r.toposort())
}
/// x
pub fn print_part(r: &UOp, _: usize) -> String {
    print(r)
}
/// x
pub fn print_program(l: &[UOp]) -> String {
    let m: rustc_hash::FxHashMap<u64, usize> = l.iter().enumerate().map(|(i, u)| (u.id(), i)).collect();
    l.iter()
        .enumerate()
        .map(|(i, u)| {
            format!(
                "%{i} = {:?} {} {}\n",
                u.op(),
                u.dtype(),
                u.src().iter().map(|s| format!("%{}", m.get(&s.id()).map_or(99999, |x| *x))).collect::<Vec<_>>().join(", ")
            )
        })
        .collect()
}
