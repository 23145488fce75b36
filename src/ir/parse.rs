//! stub
use super::UOp;
use crate::error::Result;
/// x
pub fn parse(_: &str) -> Result<UOp> {
    panic!()
}
/// x
pub fn parse_program(_: &str) -> Result<Vec<UOp>> {
    panic!()
}
