//! Every row in every form, with registers of each kind and with memory operands: the encoding
//! decodes to the same instruction.

use super::inst::{Form, Memory, Row};
use super::{rows_float, rows_general, rows_int, rows_move};
use iced_x86::{Code, Decoder, DecoderOptions, Encoder, Instruction, OpKind, Register};

const FORMS: [Form; 6] =
    [Form::Legacy, Form::Vex16, Form::Vex32, Form::Evex16, Form::Evex32, Form::Evex64];

fn rows() -> impl Iterator<Item = &'static &'static Row> {
    let lists = [rows_float::FLOATS, rows_int::INTEGERS, rows_move::MOVES, rows_general::GENERAL];
    lists.into_iter().flatten()
}

#[test]
fn rows_have_one_name_and_a_form() {
    let mut names: Vec<&str> = rows().map(|r| r.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for row in rows().filter(|r| r.name != "ENTRY") {
        assert!(FORMS.into_iter().any(|f| row.has(f)), "{} has no form", row.name);
        let plain = row.operands.bytes().all(|b| b"whqexsdbcrRki".contains(&b));
        assert!(plain, "{} has unknown operands", row.name);
    }
}

/// The register of a letter, by number.
fn register(letter: u8, form: Form, general: bool, n: u32) -> Register {
    let vector = |bytes: usize| match bytes {
        0..=16 => Register::XMM0 + n,
        17..=32 => Register::YMM0 + n,
        _ => Register::ZMM0 + n,
    };
    match letter {
        b'w' if general && form == Form::Legacy => Register::EAX + n,
        b'w' if general => Register::RAX + n,
        b'w' => vector(form.bytes()),
        b'h' => vector(form.bytes() / 2),
        b'b' => Register::AL + n % 4,
        b'c' => Register::AX + n,
        b'r' => Register::EAX + n,
        b'R' => Register::RAX + n,
        b'k' => Register::K0 + n % 8,
        _ => Register::XMM0 + n,
    }
}

/// Encodes and decodes. Returns the text of what differs.
fn differs(row: &Row, instruction: &Instruction) -> Option<String> {
    let mut encoder = Encoder::new(64);
    if let Err(e) = encoder.encode(instruction, 0x1000) {
        return Some(format!("{} {:?}: {e}", row.name, instruction.code()));
    }
    let bytes = encoder.take_buffer();
    let decoded = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
    let same = decoded.code() == instruction.code()
        && decoded.op_mask() == instruction.op_mask()
        && (0..decoded.op_count()).all(|i| {
            decoded.op_kind(i) == instruction.op_kind(i)
                && match decoded.op_kind(i) {
                    OpKind::Register => decoded.op_register(i) == instruction.op_register(i),
                    OpKind::Memory => {
                        decoded.memory_base() == instruction.memory_base()
                            && decoded.memory_index() == instruction.memory_index()
                            && decoded.memory_index_scale() == instruction.memory_index_scale()
                            && decoded.memory_displacement64()
                                == instruction.memory_displacement64()
                    }
                    _ => true,
                }
        });
    (!same).then(|| format!("{}: {instruction:?} became {decoded:?}", row.name))
}

/// The letters that a form encodes.
fn letters(row: &Row, form: Form) -> Vec<u8> {
    let general = is_general(row);
    let drops = row.tied && (general || form == Form::Legacy);
    let all = row.operands.bytes().enumerate();
    all.filter(|(i, _)| !(drops && *i == 1)).map(|(_, l)| l).collect()
}

fn is_general(row: &Row) -> bool {
    row.codes[2..].iter().all(|c| *c == Code::INVALID)
}

/// An instruction with registers from the number `n` on, and a memory operand at a place.
fn instruction(row: &Row, form: Form, letters: &[u8], place: Option<usize>, n: u32) -> Instruction {
    let count = if form >= Form::Evex16 { 32 } else { 16 };
    let mut i = Instruction::default();
    i.set_code(row.code(form));
    for (at, letter) in letters.iter().enumerate() {
        let at32 = at as u32;
        if *letter == b'i' {
            i.set_op_kind(at32, OpKind::Immediate8);
            i.set_immediate8(1);
        } else if place == Some(at) {
            i.set_op_kind(at32, OpKind::Memory);
            i.set_memory_base(Register::RAX + n % 16);
            i.set_memory_index([Register::None, Register::RCX][n as usize % 2]);
            i.set_memory_index_scale(if n % 2 == 1 { 8 } else { 1 });
            i.set_memory_displ_size(1);
            i.set_memory_displacement64([4, 1 << 20][n as usize / 2 % 2]);
        } else {
            let general = b"bcrR".contains(letter) || is_general(row);
            let n = (n + at32) % if general { 16 } else { count };
            i.set_op_kind(at32, OpKind::Register);
            i.set_op_register(at32, register(*letter, form, is_general(row), n));
        }
    }
    i
}

#[test]
fn encodings_decode_to_the_same_instruction() {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for row in rows() {
        let skipped = ["ENTRY", "JUMP", "BRANCH", "RET", "SHL_CL", "SHR_CL", "SAR_CL"];
        if skipped.contains(&row.name) || row.operands.contains('i') && is_general(row) {
            continue;
        }
        for form in FORMS.into_iter().filter(|f| row.has(*f)) {
            let letters = letters(row, form);
            let last = letters.iter().rposition(|l| *l != b'i');
            let memory_at = match row.memory {
                Memory::First => Some(0),
                Memory::Last => last,
                Memory::Never => None,
            };
            let count = if form >= Form::Evex16 { 32 } else { 16 };
            for n in 0..count {
                for in_memory in [false, true] {
                    let place = memory_at.filter(|_| in_memory);
                    let must = row.name.starts_with("MASK_") || row.name == "LEA";
                    let only = must || row.name.starts_with("LOAD_");
                    let stores = row.name.starts_with("STORE_S");
                    if (in_memory && place.is_none()) || (!in_memory && (only || stores)) {
                        continue;
                    }
                    checked += 1;
                    wrong.extend(differs(row, &instruction(row, form, &letters, place, n)));
                }
            }
        }
    }
    wrong.sort();
    wrong.dedup_by_key(|w| w.split(' ').next().map(str::to_string));
    assert!(
        wrong.is_empty(),
        "{} of {checked}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(checked > 10_000, "only {checked}");
}
