//! Products of a few rows with matrices of `f32` and `bf16`.

use halite_core::{
    Capabilities, DType, HostArray, Kernels, MeshShape, PartitionSpec, TensorType,
    tree::{Empty, Leaf},
};
use halite_ir::DotAttributes;
use halite_nn::{Function, ScanOptions, ShardedType, Tensor, Trace, lower};
use halite_tests::{eval, eval::noise, random::Random};

use super::{compare, f32_noise, mesh, run, traced};

/// Sizes of a product, or of one for each matrix of a stack.
#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    terms: usize,
    columns: usize,
    is_transposed: bool,
    result: DType,
    /// Type of the matrices.
    stored: DType,
    /// Products are of `f32`: narrow matrices are converted before the loop, as stored weights are.
    is_wide: bool,
}

impl Case {
    fn draw(index: u64) -> Self {
        let random = &mut Random::new(3, index);
        let stored = *random.pick(&[DType::F32, DType::Bf16]);
        let is_wide = stored == DType::F32 || random.percent(50);
        let (mut terms, mut columns) = (1 + random.below(70), 2 + random.below(70));
        // More than a block of terms, or a tile of columns.
        match random.below(8) {
            0 => terms += 500 * random.below(4),
            1 => columns += 1000,
            _ => {}
        }
        Case {
            rows: 1 + random.below(6),
            terms,
            columns,
            is_transposed: random.percent(50),
            result: *random.pick(&[DType::F32, if is_wide { DType::F32 } else { DType::Bf16 }]),
            stored,
            is_wide,
        }
    }

    /// Rows, and a stack of `count` matrices.
    fn inputs(&self, count: usize) -> Vec<(HostArray, PartitionSpec)> {
        let matrix = match self.is_transposed {
            true => [count, self.columns, self.terms],
            false => [count, self.terms, self.columns],
        };
        let matrices = noise(2, &matrix, -1.0, 1.0).to_float(self.stored).unwrap();
        let rows = f32_noise(1, &[self.rows, self.terms]);
        let all = [rows, matrices];
        all.map(|array| (array, PartitionSpec::replicated())).into()
    }

    /// The matrices, in the type of the products.
    fn stack<'t>(&self, matrices: Tensor<'t>) -> Tensor<'t> {
        match self.is_wide {
            true => matrices.convert(DType::F32),
            false => matrices,
        }
    }

    /// `x` by a matrix, in `f32`.
    fn product<'t>(&self, x: Tensor<'t>, matrix: Tensor<'t>) -> Tensor<'t> {
        let dot = DotAttributes {
            lhs_batching: vec![],
            rhs_batching: vec![],
            lhs_contracting: vec![1],
            rhs_contracting: vec![usize::from(self.is_transposed)],
            ..DotAttributes::default()
        };
        let product = x
            .convert(matrix.dtype())
            .dot_general(matrix, dot, self.result);
        product.convert(DType::F32)
    }

    /// Checks a function of the rows and a stack of `count` matrices against the compiler's code.
    fn check(&self, name: &str, count: usize, function: impl eval::Function + Copy) {
        let [own, xla] = [Kernels::All, Kernels::Off]
            .map(|kernels| run(kernels, &mesh(1), function, &self.inputs(count)).unwrap());
        // The compiler rounds to bf16, too, but may sum in another order.
        let tolerance = if self.result == DType::F32 {
            1e-5
        } else {
            1e-2
        };
        compare(&format!("{name}: {self:?}"), &own, &xla, tolerance);
    }
}

#[test]
fn random_products_agree() {
    for index in 0..40 {
        let case = Case::draw(index);
        let product = traced(move |_, x| vec![case.product(x[0], case.stack(x[1]).squeeze(0))]);
        case.check("product", 1, product);
    }
}

#[test]
fn products_in_loops_agree() {
    for index in 0..16 {
        let case = Case::draw(index);
        for reverse in [false, true] {
            let options = ScanOptions {
                reverse,
                ..ScanOptions::default()
            };
            let products = traced(move |cx, x| {
                let none = Empty::<Tensor<'_>>::new();
                let (_, Leaf(products)) = cx.scan_with(
                    options,
                    none,
                    Leaf(case.stack(x[1])),
                    |none, Leaf(matrix)| (none, Leaf(case.product(x[0], matrix))),
                );
                vec![products]
            });
            case.check("loop", 3, products);
        }
    }
}

/// Text of the decode step of a stack of layers, one matrix each.
#[test]
fn loops_pass_the_whole_stack() {
    let function = Function::<_, (Leaf<()>, Leaf<()>), Leaf<()>>::stateless(
        |cx: &Trace, (Leaf(x), Leaf(stack))| {
            let (Leaf(x), _) = cx.scan(Leaf(x), Leaf(stack), |Leaf(x), Leaf(matrix)| {
                (Leaf(x.matmul(matrix)), Empty::<Tensor<'_>>::new())
            });
            Leaf(x)
        },
    );
    let ty = |dims: &[usize]| ShardedType::replicated(TensorType::new(DType::F32, dims));
    let mut capabilities = Capabilities::PORTABLE;
    capabilities.kernels = Kernels::On;
    let mesh = MeshShape::new([("data", 1)]).unwrap();
    for (stored, name) in [(DType::F32, "f32"), (DType::Bf16, "bf16")] {
        let stack = ty(&[4, 256, 256]).stored_as(stored);
        let inputs = (Leaf(ty(&[1, 1, 256])), Leaf(stack));
        let lowered = lower(&function, &Empty::new(), &inputs, &mesh, &capabilities).unwrap();
        let text = String::from_utf8(lowered.program.code.bytes().to_vec()).unwrap();
        let call = format!("tensor<1x256xf32>, tensor<4x256x256x{name}>, tensor<i32>) -> ");
        assert!(text.contains(&call), "{text}");
    }
}
