//! The operations that are measured, as programs.

/// Names and programs.
pub(crate) fn operations() -> Vec<(&'static str, String)> {
    let pool = (
        "tensor<16x64x64x16xf32>",
        "tensor<16x32x32x16xf32>",
        "padding = dense<0> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 2, 2, 1>, \
         window_strides = array<i64: 1, 2, 2, 1>",
    );
    vec![
        ("top_k 40 of 8x50257", top_k(8, 50257, 40)),
        (
            "fft of 256x1024",
            fft("256x1024", "256x1024", "FFT", "1024"),
        ),
        (
            "rfft2 of 128x128",
            fft("128x128", "128x65", "RFFT", "128, 128"),
        ),
        ("cumsum 1024x64 along 0", scan("add", "0.0", [1024, 64], 0)),
        (
            "cummax 64x512 along 1",
            scan("maximum", "0xFF800000", [64, 512], 1),
        ),
        ("argmax 1000x256 along 0", argmax(1000, 256)),
        ("sort 32768", sort(32768)),
        ("gather 64K points", GATHER.to_owned()),
        ("scatter-add 64K points", SCATTER.to_owned()),
        (
            "max pool gradient",
            select_and_scatter(pool.0, pool.1, pool.2),
        ),
        ("loop of 1000, dynamic index", LOOP.to_owned()),
        ("philox 1M words", random("PHILOX")),
        ("threefry 1M words", random("THREE_FRY")),
        ("cholesky 128", CHOLESKY.to_owned()),
        ("triangular_solve 128x128", SOLVE.to_owned()),
        ("sort 32768 by two keys", TWO_KEYS.to_owned()),
        ("scatter-max 64K points", SCATTER.replace("add", "maximum")),
        (
            "scatter-add 64K points, f64",
            SCATTER.replace("xf32", "xf64").replace("<f32>", "<f64>"),
        ),
        ("gather of 64K along axis 1", ALONG.to_owned()),
        ("sum 64x128x128 over 0 and 2", APART.to_owned()),
        (
            "f64 1024x1024 by a vector",
            vector("1024x1024", "1024", "f64"),
        ),
        ("inner product of 256K", vector("1x262144", "262144", "f32")),
        (
            "reverse 1024x1024",
            moved("1024x1024", "reverse %x, dims = [1]"),
        ),
        (
            "every other of 1024x1024",
            moved("1024x512", "slice %x [0:1024, 0:1024:2]"),
        ),
        (
            "repeat 1024x1024 four times",
            moved("1024x1024x4", "broadcast_in_dim %x, dims = [0, 1]"),
        ),
    ]
}

const COMPARE: &str = "
      %z = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %z : tensor<i1>";

fn top_k(rows: usize, columns: usize, count: usize) -> String {
    let of = |ty: &str| format!("tensor<{rows}x{columns}x{ty}>");
    let part = |ty: &str| format!("tensor<{rows}x{count}x{ty}>");
    let (x, i, v, p) = (of("f32"), of("i32"), part("f32"), part("i32"));
    format!(
        "func.func private @sorted(%x: {x}) -> ({v}, {p}) {{
    %i = stablehlo.iota dim = 1 : {i}
    %s:2 = \"stablehlo.sort\"(%x, %i) <{{dimension = 1 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %j: tensor<i32>, %k: tensor<i32>):{COMPARE}
    }}) : ({x}, {i}) -> ({x}, {i})
    %v = stablehlo.slice %s#0 [0:{rows}, 0:{count}] : ({x}) -> {v}
    %p = stablehlo.slice %s#1 [0:{rows}, 0:{count}] : ({i}) -> {p}
    return %v, %p : {v}, {p}
  }}
  func.func public @main(%x: {x}) -> ({v}, {p}) {{
    %r:2 = stablehlo.composite \"chlo.top_k\" %x {{composite_attributes = {{k = {count} : i64}}, \
         decomposition = @sorted, version = 1 : i32}} : ({x}) -> ({v}, {p})
    return %r#0, %r#1 : {v}, {p}
  }}"
    )
}

fn sort(size: usize) -> String {
    let ty = format!("tensor<{size}xf32>");
    format!(
        "func.func public @main(%x: {ty}) -> {ty} {{
    %y = \"stablehlo.sort\"(%x) <{{dimension = 0 : i64, is_stable = true}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):{COMPARE}
    }}) : ({ty}) -> {ty}
    return %y : {ty}
  }}"
    )
}

fn fft(dims: &str, results: &str, kind: &str, lengths: &str) -> String {
    let element = if kind == "FFT" { "complex<f32>" } else { "f32" };
    let (x, y) = (
        format!("tensor<{dims}x{element}>"),
        format!("tensor<{results}xcomplex<f32>>"),
    );
    format!(
        "func.func public @main(%x: {x}) -> {y} {{
    %y = stablehlo.fft %x, type = {kind}, length = [{lengths}] : ({x}) -> {y}
    return %y : {y}
  }}"
    )
}

fn scan(op: &str, initial: &str, dims: [usize; 2], dim: usize) -> String {
    let ty = format!("tensor<{}x{}xf32>", dims[0], dims[1]);
    let (mut window, mut padding) = ([1, 1], [[0, 0], [0, 0]]);
    window[dim] = dims[dim];
    padding[dim][0] = dims[dim] - 1;
    format!(
        "func.func public @main(%x: {ty}) -> {ty} {{
    %i = stablehlo.constant dense<{initial}> : tensor<f32>
    %y = \"stablehlo.reduce_window\"(%x, %i) <{{padding = dense<{padding:?}> : tensor<2x2xi64>, \
         window_dimensions = array<i64: {}, {}>}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %z = stablehlo.{op} %a, %b : tensor<f32>
      stablehlo.return %z : tensor<f32>
    }}) : ({ty}, tensor<f32>) -> {ty}
    return %y : {ty}
  }}",
        window[0], window[1]
    )
}

fn argmax(rows: usize, columns: usize) -> String {
    let (x, i) = (
        format!("tensor<{rows}x{columns}xf32>"),
        format!("tensor<{rows}x{columns}xi32>"),
    );
    let (y, j) = (
        format!("tensor<{columns}xf32>"),
        format!("tensor<{columns}xi32>"),
    );
    format!(
        "func.func public @main(%x: {x}) -> {j} {{
    %i = stablehlo.iota dim = 0 : {i}
    %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %none = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.reduce(%x init: %least), (%i init: %none) across dimensions = [0] : \
         ({x}, {i}, tensor<f32>, tensor<i32>) -> ({y}, {j})
     reducer(%a: tensor<f32>, %b: tensor<f32>) (%m: tensor<i32>, %n: tensor<i32>) {{
      %2 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.or %2, %3 : tensor<i1>
      %5 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %6 = stablehlo.compare LT, %m, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.and %5, %6 : tensor<i1>
      %8 = stablehlo.or %4, %7 : tensor<i1>
      %9 = stablehlo.select %4, %a, %b : tensor<i1>, tensor<f32>
      %10 = stablehlo.select %8, %m, %n : tensor<i1>, tensor<i32>
      stablehlo.return %9, %10 : tensor<f32>, tensor<i32>
    }}
    return %r#1 : {j}
  }}"
    )
}

fn select_and_scatter(x: &str, y: &str, windows: &str) -> String {
    format!(
        "func.func public @main(%x: {x}, %y: {y}) -> {x} {{
    %i = stablehlo.constant dense<0.0> : tensor<f32>
    %z = \"stablehlo.select_and_scatter\"(%x, %y, %i) <{{{windows}}}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }}, {{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }}) : ({x}, {y}, tensor<f32>) -> {x}
    return %z : {x}
  }}"
    )
}

fn random(algorithm: &str) -> String {
    format!(
        "func.func public @main(%x: tensor<2xui64>) -> tensor<1048576xui32> {{
    %s, %y = stablehlo.rng_bit_generator %x, algorithm = {algorithm} : \
         (tensor<2xui64>) -> (tensor<2xui64>, tensor<1048576xui32>)
    return %y : tensor<1048576xui32>
  }}"
    )
}

const GATHER: &str = "
func.func public @main(%x: tensor<1000x100xf32>, %i: tensor<65536x2xi32>) -> tensor<65536xf32> {
  %y = \"stablehlo.gather\"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = \
      [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : \
      (tensor<1000x100xf32>, tensor<65536x2xi32>) -> tensor<65536xf32>
  return %y : tensor<65536xf32>
}";

const SCATTER: &str = "
func.func public @main(%x: tensor<1000xf32>, %i: tensor<65536x1xi32>, %u: tensor<65536xf32>) -> \
      tensor<1000xf32> {
  %y = \"stablehlo.scatter\"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<\
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<1000xf32>, tensor<65536x1xi32>, tensor<65536xf32>) -> tensor<1000xf32>
  return %y : tensor<1000xf32>
}";

const LOOP: &str = "
func.func public @main(%x: tensor<1000x16xf32>) -> tensor<1000x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.constant dense<1000> : tensor<i32>
  %factor = stablehlo.constant dense<2.0> : tensor<1x16xf32>
  %0:2 = stablehlo.while(%i = %zero, %all = %x) : tensor<i32>, tensor<1000x16xf32>
    cond {
      %less = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %row = stablehlo.dynamic_slice %all, %i, %zero, sizes = [1, 16] : \
          (tensor<1000x16xf32>, tensor<i32>, tensor<i32>) -> tensor<1x16xf32>
      %twice = stablehlo.multiply %row, %factor : tensor<1x16xf32>
      %next = stablehlo.dynamic_update_slice %all, %twice, %i, %zero : (tensor<1000x16xf32>, \
          tensor<1x16xf32>, tensor<i32>, tensor<i32>) -> tensor<1000x16xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %next : tensor<i32>, tensor<1000x16xf32>
    }
  return %0#1 : tensor<1000x16xf32>
}";

const CHOLESKY: &str = "
func.func public @main(%x: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<128x128xf32>) -> tensor<128x128xf32>
  %s = stablehlo.dot %x, %t : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %y = stablehlo.cholesky %s, lower = true : tensor<128x128xf32>
  return %y : tensor<128x128xf32>
}";

const SOLVE: &str = "
func.func public @main(%a: tensor<128x128xf32>, %b: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %y = \"stablehlo.triangular_solve\"(%a, %b) <{left_side = true, lower = true, unit_diagonal = \
      true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : \
      (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  return %y : tensor<128x128xf32>
}";

const TWO_KEYS: &str = "
func.func public @main(%x: tensor<32768xi32>, %y: tensor<32768xi32>) -> tensor<32768xi32> {
  %s:2 = \"stablehlo.sort\"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
      %1 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %2 = stablehlo.compare EQ, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %3 = stablehlo.compare LT, %c, %d, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %4 = stablehlo.and %2, %3 : tensor<i1>
      %5 = stablehlo.or %1, %4 : tensor<i1>
      stablehlo.return %5 : tensor<i1>
    }) : (tensor<32768xi32>, tensor<32768xi32>) -> (tensor<32768xi32>, tensor<32768xi32>)
  return %s#1 : tensor<32768xi32>
}";

/// `jax.numpy.take_along_axis`, with the test of the indices that it has.
const ALONG: &str = "
func.func public @main(%x: tensor<1024x256xf32>, %i: tensor<1024x64x1xi32>) -> \
      tensor<1024x64xf32> {
  %last = stablehlo.constant dense<255> : tensor<1024x64x1xi32>
  %true = stablehlo.constant dense<true> : tensor<i1>
  %nan = stablehlo.constant dense<0x7FC00000> : tensor<1024x64xf32>
  %less = stablehlo.compare LE, %i, %last, SIGNED : \
      (tensor<1024x64x1xi32>, tensor<1024x64x1xi32>) -> tensor<1024x64x1xi1>
  %all = stablehlo.reduce(%less init: %true) applies stablehlo.and across dimensions = [2] : \
      (tensor<1024x64x1xi1>, tensor<i1>) -> tensor<1024x64xi1>
  %y = \"stablehlo.gather\"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = \
      [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], \
      index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}> : \
      (tensor<1024x256xf32>, tensor<1024x64x1xi32>) -> tensor<1024x64xf32>
  %z = stablehlo.select %all, %y, %nan : tensor<1024x64xi1>, tensor<1024x64xf32>
  return %z : tensor<1024x64xf32>
}";

const APART: &str = "
func.func public @main(%x: tensor<64x128x128xf32>) -> tensor<128xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 2] : \
      (tensor<64x128x128xf32>, tensor<f32>) -> tensor<128xf32>
  return %y : tensor<128xf32>
}";

/// The product of a matrix and a vector.
fn vector(matrix: &str, size: &str, element: &str) -> String {
    let rows = matrix.split('x').next().unwrap_or_default();
    let [x, y, z] = [matrix, size, rows].map(|dims| format!("tensor<{dims}x{element}>"));
    format!(
        "func.func public @main(%x: {x}, %y: {y}) -> {z} {{
    %z = stablehlo.dot %x, %y : ({x}, {y}) -> {z}
    return %z : {z}
  }}"
    )
}

/// Elements of 1024x1024 in another arrangement.
fn moved(dims: &str, operation: &str) -> String {
    let (x, y) = ("tensor<1024x1024xf32>", format!("tensor<{dims}xf32>"));
    let ty = match operation.starts_with("reverse") {
        true => x.to_owned(),
        false => format!("({x}) -> {y}"),
    };
    format!(
        "func.func public @main(%x: {x}) -> {y} {{
    %y = stablehlo.{operation} : {ty}
    return %y : {y}
  }}"
    )
}
