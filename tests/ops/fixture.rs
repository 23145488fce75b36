//! Parses the fixture of tests/fixtures/make_ops.py: inputs and PyTorch's results.

use picograd::DType;

/// The kind of numbers of a case, which determines its dtypes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Float,
    Signed,
    Unsigned,
    Bool,
    /// Every input has its own dtype.
    Fixed,
}

impl Kind {
    /// The dtypes that a case runs in, for forward and backward.
    pub fn dtypes(self) -> &'static [DType] {
        match self {
            Kind::Float => &[DType::F64, DType::F32, DType::F16, DType::BF16],
            Kind::Signed => &[DType::I64, DType::I32, DType::I16, DType::I8],
            Kind::Unsigned => &[DType::U64, DType::U32, DType::U16, DType::U8],
            Kind::Bool => &[DType::BOOL],
            Kind::Fixed => &[],
        }
    }
}

/// An array of numbers. Integers and bools are small enough to be exact in f64.
#[derive(Clone, Debug)]
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

#[derive(Debug)]
pub struct Block {
    pub name: String,
    pub kind: Kind,
    /// The inputs, each with its dtype if it is fixed.
    pub inputs: Vec<(Option<DType>, Array)>,
    /// The outputs, each with `f`, `i` or `b`.
    pub outputs: Vec<(char, Array)>,
    /// The gradient of each input in the dtype under test; empty if PyTorch has none.
    pub grads: Vec<Array>,
    /// True if difference quotients do not apply.
    pub rough: bool,
}

impl Block {
    /// The name in messages.
    pub fn label(&self) -> String {
        let shapes: Vec<String> =
            self.inputs.iter().map(|(_, a)| format!("{:?}", a.shape)).collect();
        format!("{} of {:?} {}", self.name, self.kind, shapes.join(" "))
    }
}

/// Parses `f[2,3] 1 2 …`: the mark before the shape, and the array.
fn array(text: &str) -> (String, Array) {
    let (mark, rest) = text.split_once('[').expect("a shape");
    let (shape, numbers) = rest.split_once(']').expect("the end of a shape");
    let shape: Vec<usize> =
        shape.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().expect("a size")).collect();
    let data: Vec<f64> = numbers.split_whitespace().map(|x| x.parse().expect("a number")).collect();
    assert_eq!(data.len(), shape.iter().product::<usize>(), "{text}");
    (mark.to_string(), Array { shape, data })
}

pub fn blocks() -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    let files = [include_str!("../fixtures/ops.txt"), include_str!("../fixtures/ops_api.txt")];
    for line in files.iter().flat_map(|f| f.lines()).filter(|l| !l.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if !matches!(word, "in" | "out" | "grad" | "rough") {
            let kind = match rest {
                "f" => Kind::Float,
                "i" => Kind::Signed,
                "u" => Kind::Unsigned,
                "b" => Kind::Bool,
                "n" => Kind::Fixed,
                other => panic!("unknown kind {other}"),
            };
            all.push(Block {
                name: word.into(),
                kind,
                inputs: vec![],
                outputs: vec![],
                grads: vec![],
                rough: false,
            });
            continue;
        }
        let block = all.last_mut().expect("a name before its numbers");
        match word {
            "in" => {
                let (mark, array) = array(rest);
                let dtype = (mark != "v")
                    .then(|| *DType::ALL.iter().find(|d| d.name() == mark).expect("a dtype"));
                block.inputs.push((dtype, array));
            }
            "out" => {
                let (mark, array) = array(rest);
                block.outputs.push((mark.chars().next().expect("a mark"), array));
            }
            "grad" => block.grads.push(array(rest).1),
            _ => block.rough = true,
        }
    }
    all
}
