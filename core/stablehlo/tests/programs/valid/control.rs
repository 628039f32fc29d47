//! Control flow, calls, linear algebra and random numbers.

use halite_stablehlo::{
    Attributes, BinaryOp, CustomCallAttributes, FftKind, Module, OpKind, RngAlgorithm,
    RngDistribution, Transposition,
};

use crate::programs::program::{Builder, less_than, module, program, program_with, zeros};

pub(crate) fn while_loop() -> Module {
    program_with(OpKind::While, "i32 f32 i32", "i32 f32 i32", |b| {
        let limit = b.inputs()[2];
        let condition = b.region("i32 f32 i32", |b, args| {
            b.op(less_than(), &[args[0], limit], "i1")
        });
        let body = b.region("i32 f32 i32", |b, args| {
            let next = b.op(OpKind::Binary(BinaryOp::Add), &[args[0], args[2]], "i32")[0];
            vec![next, args[1], args[2]]
        });
        vec![condition, body]
    })
}

pub(crate) fn if_else() -> Module {
    program_with(OpKind::If, "i1", "f32", |b| {
        let one =
            |b: &mut Builder| b.region("", |b, _| b.op(OpKind::Constant(zeros("f32")), &[], "f32"));
        vec![one(b), one(b)]
    })
}

pub(crate) fn case() -> Module {
    program_with(OpKind::Case, "i32", "i32", |b| {
        let index = b.inputs()[0];
        let one = |b: &mut Builder| b.region("", |_, _| vec![index]);
        vec![one(b), one(b), one(b)]
    })
}

/// `main` calls `f`, which calls `g`.
pub(crate) fn call() -> Module {
    let calling = |name: &str, callee: &str| {
        let mut function = Builder::new(name, "2xf32");
        let inputs = function.inputs();
        let callee = callee.to_owned();
        let results = function.op(OpKind::Call { function: callee }, &inputs, "2xf32");
        function.finish(results)
    };
    let leaf = Builder::new("g", "2xf32");
    let inputs = leaf.inputs();
    module(vec![
        calling("main", "f"),
        calling("f", "g"),
        leaf.finish(inputs),
    ])
}

pub(crate) fn composite() -> Module {
    let mut composite = call();
    for function in &mut composite.functions[..2] {
        function.body.operations[0].kind = OpKind::Composite {
            name: "chlo.erf".into(),
            attributes: Attributes::default(),
            decomposition: "g".into(),
            version: 1,
        };
    }
    composite
}

pub(crate) fn custom_call() -> Module {
    let kind = OpKind::CustomCall(Box::new(CustomCallAttributes {
        target: "Qr".into(),
        ..CustomCallAttributes::default()
    }));
    program(kind, "4x3xf32 token", "tuple<4x3xf32,3xf32> token")
}

pub(crate) fn tuple() -> Module {
    program(OpKind::Tuple, "2xf32 token", "tuple<2xf32,token>")
}

pub(crate) fn get_tuple_element() -> Module {
    program(
        OpKind::GetTupleElement { index: 1 },
        "tuple<2xf32,token>",
        "token",
    )
}

pub(crate) fn fft(transform: FftKind, operand: &str, result: &str) -> Module {
    let lengths = vec![4, 6];
    program(OpKind::Fft { transform, lengths }, operand, result)
}

pub(crate) fn triangular_solve() -> Module {
    let kind = OpKind::TriangularSolve {
        left_side: false,
        lower: true,
        unit_diagonal: false,
        transpose: Transposition::No,
    };
    program(kind, "2x3x3xf32 2x4x3xf32", "2x4x3xf32")
}

pub(crate) fn cholesky() -> Module {
    program(OpKind::Cholesky { lower: true }, "2x3x3xf64", "2x3x3xf64")
}

pub(crate) fn batch_norm_grad() -> Module {
    let kind = OpKind::BatchNormGrad {
        epsilon: 0.1,
        feature: 1,
    };
    program(
        kind,
        "2x3xf32 3xf32 3xf32 3xf32 2x3xf32",
        "2x3xf32 3xf32 3xf32",
    )
}

pub(crate) fn rng() -> Module {
    let distribution = RngDistribution::Normal;
    program(OpKind::Rng { distribution }, "f32 f32 2xi64", "3x4xf32")
}

pub(crate) fn rng_bit_generator() -> Module {
    let algorithm = RngAlgorithm::ThreeFry;
    program(
        OpKind::RngBitGenerator { algorithm },
        "2xui64",
        "2xui64 5xui32",
    )
}
