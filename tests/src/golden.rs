//! Golden values: cases written by `golden/make.py` (what JAX computes), and running the same
//! computations here.
//!
//! A case names the function that it is of; [`Function`]s are written in `tests/golden`. All cases
//! of a group are traced into one program, since compiling many small ones takes longer.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use halite_core::{
    DType, HostArray, Result, TensorType,
    tree::{Leaf, Tree},
};
use halite_ir::{Extreme, Graph, Literal, Op, Reduction};
use halite_nn::{Tensor, Trace, vjp};
use safetensors::SafeTensors;
use serde::Deserialize;
use serde_json::Value;

use crate::eval::try_eval;

/// One computation on one set of inputs.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// `FUNCTION.VARIANT`.
    pub name: String,
    /// The file that its tensors are in, and the program that it is compiled into.
    pub group: String,
    /// The function that it is of.
    pub function: String,
    /// How far a result may be off, relative to its size and to the largest of its tensor (at most
    /// 1). 0: the same bits.
    pub tolerance: f64,
    /// Names of its inputs.
    pub inputs: Vec<String>,
    /// How many outputs it has.
    pub outputs: usize,
    /// The inputs that gradients are taken of.
    #[serde(default)]
    pub gradients: Vec<String>,
    /// Arguments of the function besides the inputs.
    #[serde(default)]
    pub attributes: BTreeMap<String, Value>,
}

/// What a function is given: the inputs of a case in the trace, and its attributes.
#[derive(Debug)]
pub struct Given<'t> {
    /// The trace.
    pub cx: &'t Trace,
    case: Case,
    inputs: Vec<Tensor<'t>>,
}

/// The computation of a case, with halite.
pub type Function = for<'t> fn(&Given<'t>) -> Vec<Tensor<'t>>;

/// A function by its name in the cases.
pub type Named = (&'static str, Function);

/// All cases.
pub fn cases() -> &'static [Case] {
    #[derive(Deserialize)]
    struct File {
        cases: Vec<Case>,
    }
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let text = std::fs::read_to_string(folder().join("cases.json"))
            .expect("cases.json is in the repository");
        serde_json::from_str::<File>(&text)
            .expect("cases.json is what make.py writes")
            .cases
    })
}

/// Runs every case of `group`, and panics with a line for each result that differs.
///
/// # Panics
/// If a result differs, or a case cannot be traced or compiled: names the cases.
pub fn check_group(group: &str, functions: &[Named]) {
    let cases: Vec<Case> = cases()
        .iter()
        .filter(|case| case.group == group)
        .cloned()
        .collect();
    assert!(!cases.is_empty(), "no cases of group {group}");
    let tensors = read_tensors(group);
    let differences = match run(&cases, &tensors, functions) {
        Ok(differences) => differences,
        // One by one, to say which of them it is.
        Err(error) => {
            let alone = |case: &Case| match run(std::slice::from_ref(case), &tensors, functions) {
                Ok(differences) => differences,
                Err(error) => vec![format!("{}: {error}", case.name)],
            };
            let differences: Vec<String> = cases.iter().flat_map(alone).collect();
            if differences.is_empty() {
                vec![format!("only all together: {error}")]
            } else {
                differences
            }
        }
    };
    assert!(
        differences.is_empty(),
        "{} of group {group}:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// The operations that the cases are made of, before gradients are taken, each once by name.
///
/// # Panics
/// If a case cannot be traced.
pub fn operations(functions: &[Named]) -> BTreeMap<&'static str, Op> {
    let mut seen = BTreeMap::new();
    for graph in graphs(functions, false).values() {
        collect(graph, &mut seen);
    }
    seen
}

/// The graph of each group of cases, with gradients or without them.
///
/// # Panics
/// If a case cannot be traced.
pub fn graphs(functions: &[Named], gradients: bool) -> BTreeMap<&'static str, Graph> {
    let mut groups = BTreeMap::<&str, Vec<Case>>::new();
    for case in cases() {
        let group = groups.entry(&case.group).or_default();
        group.push(case.clone());
        if let (false, Some(case)) = (gradients, group.last_mut()) {
            case.gradients.clear();
        }
    }
    let graph = |(group, cases): (&'static str, Vec<Case>)| {
        let tensors = read_tensors(group);
        let cx = Trace::new();
        let ty = |case: &Case, input: &String| {
            tensors[&format!("{}/in/{input}", case.name)].ty().clone()
        };
        let types = cases
            .iter()
            .flat_map(|case| case.inputs.iter().map(move |input| (case, input)));
        let inputs: Vec<Tensor<'_>> = types
            .map(|(case, input)| cx.input(ty(case, input), input.as_str()))
            .collect();
        let outputs = trace_cases(&cx, &inputs, &cases, functions);
        let graph = cx.graph(&inputs, &outputs);
        let graph = graph.unwrap_or_else(|error| panic!("group {group}: {error}"));
        (group, graph)
    };
    groups.into_iter().map(graph).collect()
}

/// Adds the operations of a graph and of its regions by name.
pub fn collect(graph: &Graph, seen: &mut BTreeMap<&'static str, Op>) {
    for node in graph.nodes() {
        node.op
            .regions()
            .into_iter()
            .for_each(|region| collect(region, seen));
        seen.entry(node.op.name())
            .or_insert_with(|| node.op.clone());
    }
}

/// What outputs and gradients of the cases differ in from the golden ones.
fn run(
    cases: &[Case],
    tensors: &BTreeMap<String, HostArray>,
    functions: &[Named],
) -> Result<Vec<String>> {
    let mut inputs = Vec::new();
    let mut expected = Vec::new();
    for case in cases {
        inputs.extend(
            case.inputs
                .iter()
                .map(|input| tensors[&format!("{}/in/{input}", case.name)].clone()),
        );
        let outputs = (0..case.outputs).map(|index| format!("{}/out/{index}", case.name));
        let gradients = case
            .gradients
            .iter()
            .map(|name| format!("{}/grad/{name}", case.name));
        expected.extend(outputs.chain(gradients).map(|key| (case.tolerance, key)));
    }
    let (cases, functions) = (cases.to_vec(), functions.to_vec());
    let outputs = try_eval(
        move |cx, parameters| trace_cases(cx, parameters, &cases, &functions),
        &inputs,
    )?;
    let compared = expected
        .iter()
        .zip(&outputs)
        .filter_map(|((tolerance, key), output)| {
            difference(output, &tensors[key], *tolerance)
                .map(|difference| format!("{key}: {difference}"))
        });
    Ok(compared.collect())
}

/// The outputs and gradients of each case, one case after the other.
fn trace_cases<'t>(
    cx: &'t Trace,
    parameters: &[Tensor<'t>],
    cases: &[Case],
    functions: &[Named],
) -> Vec<Tensor<'t>> {
    let mut rest = parameters;
    let mut traced = Vec::new();
    for case in cases {
        let (inputs, others) = rest.split_at(case.inputs.len());
        rest = others;
        let given = Given {
            cx,
            case: case.clone(),
            inputs: inputs.to_vec(),
        };
        let function = functions.iter().find(|(name, _)| *name == case.function);
        let (_, function) = function.unwrap_or_else(|| panic!("no function `{}`", case.function));
        let outputs = function(&given);
        assert_eq!(outputs.len(), case.outputs, "outputs of {}", case.name);
        traced.extend(&outputs);
        if !case.gradients.is_empty() {
            let floats: Vec<Tensor<'t>> = outputs
                .into_iter()
                .filter(|output| output.dtype().is_float())
                .collect();
            let cotangents: Vec<Tensor<'t>> =
                floats.iter().map(|output| cotangent(*output)).collect();
            let moving: Vec<Leaf<Tensor<'t>>> = case
                .gradients
                .iter()
                .map(|name| Leaf(given.input(name)))
                .collect();
            traced.extend(vjp(&floats, &cotangents, &moving).into_leaves());
        }
    }
    traced
}

/// By what each element of `output` is weighted where gradients are taken: see `make.py`.
fn cotangent<'t>(output: Tensor<'t>) -> Tensor<'t> {
    let ty = output.ty();
    let values: Vec<f64> = (0..ty.elements())
        .map(|index| ((37 * index) % 101) as f64 / 64.0 - 50.0 / 64.0)
        .collect();
    let literal = Literal::new(&values, ty.dims()).expect("a value for each element");
    output
        .trace()
        .push_one(Op::Constant(literal), &[])
        .convert(ty.dtype())
}

/// What is different, if anything is.
fn difference(output: &HostArray, golden: &HostArray, tolerance: f64) -> Option<String> {
    if output.ty() != golden.ty() {
        return Some(format!("is {}, golden is {}", output.ty(), golden.ty()));
    }
    let (ours, theirs) = (numbers(output), numbers(golden));
    let size = golden.ty().dtype().size();
    let same_bits = |index: usize| {
        let bytes = index * size..(index + 1) * size;
        output.bytes()[bytes.clone()] == golden.bytes()[bytes]
    };
    let largest = theirs
        .iter()
        .map(|value| value.abs())
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    let scale = if largest == 0.0 {
        1.0
    } else {
        largest.min(1.0)
    };
    let close = |index: usize| {
        let (a, b) = (ours[index], theirs[index]);
        if same_bits(index) || (a.is_nan() && b.is_nan()) {
            return true;
        }
        tolerance > 0.0 && (a == b || (a - b).abs() <= tolerance * (b.abs() + scale))
    };
    let wrong: Vec<usize> = (0..ours.len()).filter(|&index| !close(index)).collect();
    let first = *wrong.first()?;
    let mut text = format!(
        "{} of {} differ, first at {first}: {:?}, golden {:?}",
        wrong.len(),
        ours.len(),
        ours[first],
        theirs[first]
    );
    if ours.len() <= 24 {
        write!(text, "\n    ours   {ours:?}\n    golden {theirs:?}").expect("writing to a string");
    }
    Some(text)
}

/// Every element as `f64`; 64-bit integers are rounded (their bits are compared first).
fn numbers(array: &HostArray) -> Vec<f64> {
    macro_rules! as_f64 {
        ($($dtype:ident $native:ty, $convert:expr;)*) => {
            match array.ty().dtype() {
                $(DType::$dtype => array.as_slice::<$native>().expect("of this type").iter().map($convert).collect(),)*
                _ => array.bytes().iter().map(|&byte| f64::from(byte)).collect(),
            }
        };
    }
    as_f64! {
        S8 i8, |&x| f64::from(x);
        S16 i16, |&x| f64::from(x);
        S32 i32, |&x| f64::from(x);
        S64 i64, |&x| x as f64;
        U8 u8, |&x| f64::from(x);
        U16 u16, |&x| f64::from(x);
        U32 u32, |&x| f64::from(x);
        U64 u64, |&x| x as f64;
        F16 half::f16, |x| x.to_f64();
        Bf16 half::bf16, |x| x.to_f64();
        F32 f32, |&x| f64::from(x);
        F64 f64, |&x| x;
    }
}

impl<'t> Given<'t> {
    /// The input of this name.
    pub fn input(&self, name: &str) -> Tensor<'t> {
        self.find(name)
            .unwrap_or_else(|| panic!("{} has no input `{name}`", self.case.name))
    }

    /// The input of this name, if the case has it.
    pub fn find(&self, name: &str) -> Option<Tensor<'t>> {
        self.case
            .inputs
            .iter()
            .position(|input| input == name)
            .map(|index| self.inputs[index])
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[Tensor<'t>] {
        &self.inputs
    }

    /// The first input.
    pub fn x(&self) -> Tensor<'t> {
        self.inputs[0]
    }

    /// The second input.
    pub fn y(&self) -> Tensor<'t> {
        self.inputs[1]
    }

    /// The attribute of this name, as whatever it is.
    pub fn get<T: for<'de> Deserialize<'de>>(&self, name: &str) -> T {
        let value = self
            .case
            .attributes
            .get(name)
            .unwrap_or_else(|| panic!("{} has no attribute `{name}`", self.case.name));
        T::deserialize(value)
            .unwrap_or_else(|error| panic!("attribute `{name}` of {}: {error}", self.case.name))
    }

    /// The attribute of this name, or its default.
    pub fn get_or_default<T: for<'de> Deserialize<'de> + Default>(&self, name: &str) -> T {
        if self.case.attributes.contains_key(name) {
            self.get(name)
        } else {
            T::default()
        }
    }

    /// A list of sizes or dimensions.
    pub fn list(&self, name: &str) -> Vec<usize> {
        self.get(name)
    }

    /// A size or dimension.
    pub fn size(&self, name: &str) -> usize {
        self.get(name)
    }

    /// An element type.
    pub fn dtype(&self, name: &str) -> DType {
        DType::from_name(&self.get::<String>(name)).expect("an element type")
    }

    /// Element types.
    pub fn dtypes(&self, name: &str) -> Vec<DType> {
        self.get::<Vec<String>>(name)
            .iter()
            .map(|name| DType::from_name(name).expect("an element type"))
            .collect()
    }

    /// The type of attributes `dtype` and `dims`.
    pub fn ty(&self) -> TensorType {
        TensorType::new(self.dtype("dtype"), self.list("dims"))
    }

    /// Attribute `kind`.
    pub fn reduction(&self) -> Reduction {
        match self.get::<String>("kind").as_str() {
            "sum" => Reduction::Sum,
            "product" => Reduction::Product,
            "max" => Reduction::Max,
            "min" => Reduction::Min,
            "and" => Reduction::And,
            "or" => Reduction::Or,
            kind => panic!("kind {kind}"),
        }
    }

    /// Attribute `kind`.
    pub fn extreme(&self) -> Extreme {
        match self.reduction() {
            Reduction::Max => Extreme::Max,
            Reduction::Min => Extreme::Min,
            kind => panic!("kind {kind:?}"),
        }
    }
}

/// What a function can give: one tensor or several.
pub trait Outputs<'t> {
    /// All of them.
    fn list(self) -> Vec<Tensor<'t>>;
}

impl<'t> Outputs<'t> for Tensor<'t> {
    fn list(self) -> Vec<Tensor<'t>> {
        vec![self]
    }
}

impl<'t> Outputs<'t> for (Tensor<'t>, Tensor<'t>) {
    fn list(self) -> Vec<Tensor<'t>> {
        vec![self.0, self.1]
    }
}

impl<'t> Outputs<'t> for Vec<Tensor<'t>> {
    fn list(self) -> Vec<Tensor<'t>> {
        self
    }
}

/// A table of [`Named`] functions: `name(given) expression;`, where the expression gives
/// [`Outputs`].
#[macro_export]
macro_rules! functions {
    ($($name:ident($given:ident) $body:expr;)*) => {
        pub(crate) const FUNCTIONS: &[$crate::golden::Named] = &[$({
            fn computation<'t>($given: &$crate::golden::Given<'t>) -> Vec<halite_nn::Tensor<'t>> {
                $crate::golden::Outputs::list($body)
            }
            (stringify!($name), computation as $crate::golden::Function)
        }),*];
    };
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn read_tensors(group: &str) -> BTreeMap<String, HostArray> {
    read_file(&folder().join(format!("{group}.safetensors")))
}

/// The tensors of a file, by name.
///
/// # Panics
/// If the file cannot be read, or has tensors of other types than operations compute with.
pub fn read_file(path: &Path) -> BTreeMap<String, HostArray> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = SafeTensors::deserialize(&bytes).expect("what make.py writes");
    let array = |view: &safetensors::tensor::TensorView<'_>| {
        let ty = TensorType::new(dtype_of(view.dtype()), view.shape());
        HostArray::from_bytes(view.data(), ty).expect("as many bytes as the type needs")
    };
    file.tensors()
        .iter()
        .map(|(name, view)| (name.clone(), array(view)))
        .collect()
}

fn dtype_of(dtype: safetensors::Dtype) -> DType {
    use safetensors::Dtype;
    match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::I8 => DType::S8,
        Dtype::I16 => DType::S16,
        Dtype::I32 => DType::S32,
        Dtype::I64 => DType::S64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        other => panic!("golden values are never {other:?}"),
    }
}
