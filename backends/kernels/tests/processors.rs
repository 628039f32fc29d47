//! Kernels have the same bits on every processor with fused multiply-add, whatever the width of its
//! vectors: digests of results, which are the same on x86-64 and on 64-bit Arm.

use halite_kernels::{
    Accumulate, Attention, AttentionBackward, AttentionGeometry, Axis, Binary, ConvDim,
    ConvGeometry, Convert, Convolution, Extent, Format, Instruction, Kind, Operand, Operation,
    Output, Program, Reduction, Source, Target, Threads, Unary, View, multiply, reduce,
};

/// Returns whether `a * b + c` is rounded once. Elsewhere products are summed with other bits.
fn fuses() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Compares digests, each given with its name and what it should be.
#[track_caller]
fn check(digests: &[(&str, u64, u64)]) {
    if !fuses() {
        println!("skipped: the processor has no fused multiply-add");
        return;
    }
    let wrong = digests
        .iter()
        .filter(|(_, found, expected)| found != expected);
    let wrong: Vec<String> = wrong
        .map(|(name, found, _)| format!("{name} {found:#x}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// FNV-1a of the words. The sign and the payload of a NaN are those of the processor.
fn digest(words: impl IntoIterator<Item = u32>) -> u64 {
    let fixed = |word: u32| match f32::from_bits(word).is_nan() {
        true => f32::NAN.to_bits(),
        false => word,
    };
    let bytes = words.into_iter().flat_map(|word| fixed(word).to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |digest: u64, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn digest_of(values: &[f32]) -> u64 {
    digest(values.iter().map(|value| value.to_bits()))
}

/// Numbers that depend on a seed.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        const FACTOR: u64 = 6_364_136_223_846_793_005;
        self.0 = self.0.wrapping_mul(FACTOR).wrapping_add(1);
        (self.0 >> 32) as u32
    }

    /// Numbers in [-1, 1).
    fn values(&mut self, count: usize) -> Vec<f32> {
        let mut value = || (self.word() >> 8) as f32 / (1 << 23) as f32 - 1.0;
        (0..count).map(|_| value()).collect()
    }
}

fn threads() -> Threads {
    Threads::new(1).expect("one thread is the caller's")
}

/// The product of `[m, k]` and `[k, n]`.
fn product([m, k, n]: [usize; 3]) -> u64 {
    let mut random = Random(1);
    let (a, b, mut out) = (random.values(m * k), random.values(k * n), vec![0.0; m * n]);
    let axis = |count: usize, stride: usize| {
        Axis::new((0..count).map(|at| (at * stride) as u32).collect())
    };
    let [rows, terms, b_terms, columns] = [axis(m, k), axis(k, 1), axis(k, n), axis(n, 1)];
    let operand = |data, rows, columns| Operand {
        data,
        offset: 0,
        rows,
        columns,
    };
    let (left, right) = (operand(&a, &rows, &terms), operand(&b, &b_terms, &columns));
    multiply(&threads(), left, right, &mut out);
    digest_of(&out)
}

#[test]
fn products_have_the_bits_of_every_processor() {
    let found = [
        ("small", product([3, 5, 7]), 0xbefa_1639_6ed5_e589),
        ("one column", product([65, 300, 1]), 0x7be9_c2c6_d8f8_c220),
        ("blocks", product([70, 800, 45]), 0x7334_8447_f348_760a),
        ("long sums", product([5, 9000, 33]), 0xffe9_c501_ea85_52d1),
    ];
    check(&found);
}

/// Results and both gradients of a convolution with kernels of 3 x 3.
fn convolution(features: usize, outputs: usize, groups: usize) -> u64 {
    let dim = ConvDim {
        input: 13,
        kernel: 3,
        input_dilation: 1,
        stride: 2,
        dilation: 1,
        low: 1,
        high: 1,
    };
    let geometry = ConvGeometry {
        batch: 3,
        features,
        outputs,
        groups,
        spatial: vec![dim; 2],
    };
    let mut random = Random(2);
    let x = random.values(geometry.input_len());
    let kernel = random.values(geometry.kernel_len());
    let g = random.values(geometry.output_len());
    let [mut out, mut dx, mut dk] = [&g, &x, &kernel].map(|like| vec![0.0; like.len()]);
    let convolution = Convolution::new(geometry).expect("the sizes are those of a convolution");
    convolution.forward(&threads(), &x, &kernel, &mut out);
    convolution.input_gradient(&threads(), &kernel, &g, &mut dx);
    convolution.kernel_gradient(&threads(), &x, &g, &mut dk);
    digest_of(&[out, dx, dk].concat())
}

#[test]
fn convolutions_have_the_bits_of_every_processor() {
    let found = [
        ("dense", convolution(5, 20, 1), 0xb74d_62f5_ef22_fc0e),
        ("groups", convolution(12, 8, 4), 0x3b2d_9013_5ea3_cdbb),
        ("depthwise", convolution(21, 21, 21), 0x5353_cb75_7cc7_725c),
    ];
    check(&found);
}

/// Results and gradients of attention.
fn attention(causal: bool) -> u64 {
    let geometry = AttentionGeometry {
        batch: 2,
        time: 70,
        source: 150,
        heads: 4,
        kv_heads: 2,
        width: 20,
        value_width: 12,
        causal,
    };
    let mut random = Random(3);
    let [q, k, v, g, row_sums] = [
        geometry.q_len(),
        geometry.k_len(),
        geometry.v_len(),
        geometry.out_len(),
        geometry.log_sums_len(),
    ]
    .map(|count| random.values(count));
    let [mut out, mut dq, mut dk, mut dv] = [&g, &q, &k, &v].map(|like| vec![0.0; like.len()]);
    let mut log_sums = vec![0.0; geometry.log_sums_len()];
    let attention = Attention::new(geometry).expect("the sizes are those of attention");
    attention.forward(&threads(), &q, &k, &v, &mut out, &mut log_sums);
    let operands = AttentionBackward {
        q: &q,
        k: &k,
        v: &v,
        log_sums: &log_sums,
        g: &g,
        row_sums: &row_sums,
    };
    attention.backward(&threads(), operands, &mut dq, &mut dk, &mut dv);
    digest_of(&[out, log_sums, dq, dk, dv].concat())
}

#[test]
fn attention_has_the_bits_of_every_processor() {
    let found = [
        ("full", attention(false), 0x8129_9f5a_a0e1_6efa),
        ("causal", attention(true), 0xf863_ea20_a24e_cac5),
    ];
    check(&found);
}

/// Every 65,537th float, so all exponents, and numbers of both signs around 1.
fn floats() -> Vec<u32> {
    let mut floats: Vec<u32> = (0..=u32::MAX).step_by(65_537).collect();
    floats.extend(Random(4).values(5000).iter().map(|x| (4.0 * x).to_bits()));
    floats
}

/// Results of one instruction.
fn computed(op: Operation, x: &[u32], y: &[u32]) -> u64 {
    let load = |view| Instruction::Load {
        into: view as u32,
        view,
    };
    let view = |source| (source, View::contiguous(&[x.len()]));
    let program = Program {
        rows: x.len(),
        columns: 1,
        registers: vec![Kind::ELEMENTS; 3],
        outputs: vec![Output::Of(Extent::Elements)],
        views: vec![view(0), view(1)],
        code: vec![
            load(0),
            load(1),
            Instruction::Apply {
                op,
                into: 2,
                operands: [0, 1, 0],
            },
            Instruction::Store { x: 2, target: 0 },
        ],
        ..Program::default()
    };
    let mut out = vec![0; x.len()];
    let sources = [x, y].map(|x| Source::Memory(Format::Word, bytemuck::cast_slice(x)));
    let target = Target {
        format: Format::Word,
        bytes: bytemuck::cast_slice_mut(&mut out),
    };
    program.run(&threads(), &sources, vec![target]);
    digest(out)
}

#[test]
fn functions_have_the_bits_of_every_processor() {
    let x = floats();
    let unary = |(name, op, expected)| (name, computed(op, &x, &x), expected);
    let found = [
        ("exp", Operation::Unary(Unary::Exp), 0x95f9_ec93_8109_6e01),
        (
            "exp_m1",
            Operation::Unary(Unary::ExpM1),
            0x37e5_4259_64b0_6146,
        ),
        ("log", Operation::Unary(Unary::Log), 0x5f99_9f9d_f02e_0234),
        (
            "log_1p",
            Operation::Unary(Unary::Log1P),
            0xad0d_e762_42f4_c4a1,
        ),
        ("tanh", Operation::Unary(Unary::Tanh), 0x9504_9b6a_8458_8411),
        (
            "logistic",
            Operation::Unary(Unary::Logistic),
            0x43ef_88f8_f6c6_c557,
        ),
        ("sqrt", Operation::Unary(Unary::Sqrt), 0x0792_3a88_3502_ab28),
        (
            "rsqrt",
            Operation::Unary(Unary::Rsqrt),
            0x6cc9_99f8_3a0a_0188,
        ),
        (
            "round_even",
            Operation::Unary(Unary::RoundEven),
            0xf1a6_bc33_5489_15d5,
        ),
        (
            "round_away",
            Operation::Unary(Unary::RoundAway),
            0xdfe4_0841_4456_a9d5,
        ),
        (
            "to signed",
            Operation::Unary(Unary::SFromFloat),
            0x3841_4b38_8adc_05dc,
        ),
        (
            "to unsigned",
            Operation::Unary(Unary::UFromFloat),
            0x7f18_a425_0afb_7bef,
        ),
        (
            "to 8 bits",
            Operation::Convert(Convert::S8FromFloat),
            0x5940_170d_8bf9_abdc,
        ),
        ("cos", Operation::Unary(Unary::Cos), 0xb7fd_8d6a_59da_b0e3),
        ("sin", Operation::Unary(Unary::Sin), 0x2fae_0a92_3387_a58f),
        ("tan", Operation::Unary(Unary::Tan), 0x0f3a_0d2b_a59d_61a8),
        ("cbrt", Operation::Unary(Unary::Cbrt), 0xe7e1_c720_f80b_99e2),
    ]
    .map(unary);
    check(&found);
}

#[test]
fn operations_have_the_bits_of_every_processor() {
    let (x, mut y) = (floats(), floats());
    let mut random = Random(5);
    for at in (1..y.len()).rev() {
        y.swap(at, random.word() as usize % (at + 1));
    }
    let binary = |(name, op, expected)| (name, computed(Operation::Binary(op), &x, &y), expected);
    let found = [
        ("add", Binary::AddF, 0x24c7_b097_ac4b_7fb1),
        ("multiply", Binary::MultiplyF, 0x5418_948c_30b6_b617),
        ("divide", Binary::DivideF, 0x59c8_79ed_a960_5833),
        ("remainder", Binary::RemainderF, 0x9c24_128d_eaea_d697),
        ("maximum", Binary::MaximumF, 0xed19_4320_d2da_8bf2),
        ("minimum", Binary::MinimumF, 0x8921_157a_b751_34da),
        ("power", Binary::PowerF, 0xbe65_0e15_0819_d420),
        ("atan2", Binary::Atan2F, 0xc5c1_be89_fccd_3430),
    ]
    .map(binary);
    check(&found);
}

/// A reduction of `[3, 5000, inner]`.
fn reduction(op: Accumulate, inner: usize) -> u64 {
    let x: Vec<u32> = (Random(6).values(15_000 * inner).iter())
        .map(|x| x.to_bits())
        .collect();
    let sizes = Reduction {
        outer: 3,
        reduced: 5000,
        inner,
        op,
    };
    let mut out = vec![0; 3 * inner];
    reduce(&threads(), sizes, 0.25f32.to_bits(), &x, &mut out);
    digest(out)
}

#[test]
fn reductions_have_the_bits_of_every_processor() {
    let found = [
        (
            "sums of rows",
            reduction(Accumulate::AddF, 1),
            0xa599_e1f7_5746_7829,
        ),
        (
            "sums of columns",
            reduction(Accumulate::AddF, 19),
            0xa2a6_9dc7_2b37_1e05,
        ),
        (
            "products",
            reduction(Accumulate::MultiplyF, 19),
            0x0e91_629f_1547_eef5,
        ),
        (
            "maxima",
            reduction(Accumulate::MaximumF, 1),
            0xa562_7808_b9df_e36e,
        ),
    ];
    check(&found);
}
