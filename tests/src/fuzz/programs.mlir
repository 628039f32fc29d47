func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.add %x, %y : tensor<2x3xf32>
  %1 = stablehlo.power %0, %x : tensor<2x3xf32>
  %2 = stablehlo.atan2 %1, %y : tensor<2x3xf32>
  return %2 : tensor<2x3xf32>
}

func.func @main(%x: tensor<4xi32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %0 = stablehlo.divide %x, %y : tensor<4xi32>
  %1 = stablehlo.remainder %0, %y : tensor<4xi32>
  %2 = stablehlo.power %1, %y : tensor<4xi32>
  %3 = stablehlo.shift_left %2, %y : tensor<4xi32>
  %4 = stablehlo.popcnt %3 : tensor<4xi32>
  return %4 : tensor<4xi32>
}

func.func @main(%x: tensor<4xbf16>) -> tensor<4xf16> {
  %0 = stablehlo.convert %x : (tensor<4xbf16>) -> tensor<4xf16>
  %1 = stablehlo.logistic %0 : tensor<4xf16>
  %2 = stablehlo.cbrt %1 : tensor<4xf16>
  %3 = stablehlo.reduce_precision %2, format = e5m2 : tensor<4xf16>
  return %3 : tensor<4xf16>
}

func.func @main(%x: tensor<2x4xui8>) -> tensor<2xui32> {
  %0 = stablehlo.bitcast_convert %x : (tensor<2x4xui8>) -> tensor<2xui32>
  return %0 : tensor<2xui32>
}

func.func @main(%x: tensor<3xf32>) -> tensor<3xcomplex<f32>> {
  %0 = stablehlo.complex %x, %x : tensor<3xcomplex<f32>>
  %1 = stablehlo.exponential %0 : tensor<3xcomplex<f32>>
  %2 = stablehlo.divide %1, %0 : tensor<3xcomplex<f32>>
  return %2 : tensor<3xcomplex<f32>>
}

func.func @main(%x: tensor<3xf32>) -> tensor<2x3x4xf32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<3xf32>) -> tensor<2x3x4xf32>
  %1 = stablehlo.iota dim = 2 : tensor<2x3x4xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<2x3x4xf32>
  return %2 : tensor<2x3x4xf32>
}

func.func @main(%x: tensor<2x6xf32>) -> tensor<4x3xf32> {
  %0 = stablehlo.reshape %x : (tensor<2x6xf32>) -> tensor<3x4xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.reverse %1, dims = [0] : tensor<4x3xf32>
  return %2 : tensor<4x3xf32>
}

func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x5xf32>) -> tensor<2x8xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 1 : (tensor<2x3xf32>, tensor<2x5xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

func.func @main(%x: tensor<8x9xf32>) -> tensor<3x2xf32> {
  %0 = stablehlo.slice %x [1:7:2, 4:8:3] : (tensor<8x9xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

func.func @main(%x: tensor<5x6xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<2x3xf32> {
  %0 = stablehlo.dynamic_slice %x, %i, %j, sizes = [2, 3] : (tensor<5x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @main(%x: tensor<5x6xf32>, %y: tensor<2x3xf32>, %i: tensor<i64>, %j: tensor<i64>) -> tensor<5x6xf32> {
  %0 = stablehlo.dynamic_update_slice %x, %y, %i, %j : (tensor<5x6xf32>, tensor<2x3xf32>, tensor<i64>, tensor<i64>) -> tensor<5x6xf32>
  return %0 : tensor<5x6xf32>
}

func.func @main(%x: tensor<4x5xf32>, %v: tensor<f32>) -> tensor<8x9xf32> {
  %0 = stablehlo.pad %x, %v, low = [1, -1], high = [0, 1], interior = [1, 1] : (tensor<4x5xf32>, tensor<f32>) -> tensor<8x9xf32>
  return %0 : tensor<8x9xf32>
}

func.func @main(%x: tensor<2x3x4xf32>, %y: tensor<2x4x5xf32>) -> tensor<2x3x5xf32> {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  return %0 : tensor<2x3x5xf32>
}

func.func @main(%x: tensor<1x8x9x2xf32>, %k: tensor<3x2x2x4xf32>) -> tensor<1x7x4x4xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 2], pad = [[0, 1], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x9x2xf32>, tensor<3x2x2x4xf32>) -> tensor<1x7x4x4xf32>
  return %0 : tensor<1x7x4x4xf32>
}

func.func @main(%x: tensor<2x8x4xf32>, %k: tensor<3x2x4xf32>) -> tensor<2x10x4xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[2, 2]], lhs_dilate = [1], rhs_dilate = [1], reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<2x8x4xf32>, tensor<3x2x4xf32>) -> tensor<2x10x4xf32>
  return %0 : tensor<2x10x4xf32>
}

func.func @main(%x: tensor<3x4xf32>, %v: tensor<f32>) -> tensor<3xf32> {
  %0 = stablehlo.reduce(%x init: %v) applies stablehlo.add across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

func.func @main(%x: tensor<3x4xf32>, %i: tensor<3x4xi32>, %v: tensor<f32>, %j: tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>) {
  %0:2 = stablehlo.reduce(%x init: %v), (%i init: %j) across dimensions = [1] : (tensor<3x4xf32>, tensor<3x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>, tensor<3xi32>)
    reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>) {
    %1 = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.select %1, %a, %b : tensor<i1>, tensor<f32>
    %3 = stablehlo.select %1, %c, %d : tensor<i1>, tensor<i32>
    stablehlo.return %2, %3 : tensor<f32>, tensor<i32>
  }
  return %0#0, %0#1 : tensor<3xf32>, tensor<3xi32>
}

func.func @main(%x: tensor<1x8x8x2xf32>, %v: tensor<f32>) -> tensor<1x4x4x2xf32> {
  %0 = "stablehlo.reduce_window"(%x, %v) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [0, 1], [1, 0], [0, 0]]> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<1x8x8x2xf32>, tensor<f32>) -> tensor<1x4x4x2xf32>
  return %0 : tensor<1x4x4x2xf32>
}

func.func @main(%x: tensor<7xf32>, %v: tensor<f32>) -> tensor<7xf32> {
  %0 = "stablehlo.reduce_window"(%x, %v) <{padding = dense<[[6, 0]]> : tensor<1x2xi64>, window_dimensions = array<i64: 7>, window_strides = array<i64: 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<7xf32>, tensor<f32>) -> tensor<7xf32>
  return %0 : tensor<7xf32>
}

func.func @main(%x: tensor<1x4x4x2xf32>, %s: tensor<1x2x2x2xf32>, %v: tensor<f32>) -> tensor<1x4x4x2xf32> {
  %0 = "stablehlo.select_and_scatter"(%x, %s, %v) <{padding = dense<[[0, 0], [0, 0], [0, 0], [0, 0]]> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<1x4x4x2xf32>, tensor<1x2x2x2xf32>, tensor<f32>) -> tensor<1x4x4x2xf32>
  return %0 : tensor<1x4x4x2xf32>
}

func.func @main(%x: tensor<3x7x5xf32>, %i: tensor<3x2x2xi32>) -> tensor<3x2x4x1xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [2, 3], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1, 2], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4, 1>}> : (tensor<3x7x5xf32>, tensor<3x2x2xi32>) -> tensor<3x2x4x1xf32>
  return %0 : tensor<3x2x4x1xf32>
}

func.func @main(%x: tensor<3x7x5xf32>, %i: tensor<3x2x2xi32>, %u: tensor<3x2x4x1xf32>) -> tensor<3x7x5xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2, 3], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1, 2], index_vector_dim = 2>, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<3x7x5xf32>, tensor<3x2x2xi32>, tensor<3x2x4x1xf32>) -> tensor<3x7x5xf32>
  return %0 : tensor<3x7x5xf32>
}

func.func @main(%x: tensor<2x5xf32>, %y: tensor<2x5xi32>) -> (tensor<2x5xf32>, tensor<2x5xi32>) {
  %0:2 = "stablehlo.sort"(%x, %y) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %1 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<2x5xf32>, tensor<2x5xi32>) -> (tensor<2x5xf32>, tensor<2x5xi32>)
  return %0#0, %0#1 : tensor<2x5xf32>, tensor<2x5xi32>
}

func.func @main(%i: tensor<i32>, %x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "stablehlo.case"(%i) ({
    %1 = stablehlo.tanh %x : tensor<3xf32>
    stablehlo.return %1 : tensor<3xf32>
  }, {
    %1 = stablehlo.negate %x : tensor<3xf32>
    stablehlo.return %1 : tensor<3xf32>
  }) : (tensor<i32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

func.func @main(%p: tensor<i1>, %x: tensor<3xf32>, %y: tensor<f32>) -> tensor<3xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.clamp %y, %x, %y : (tensor<f32>, tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
    stablehlo.return %1 : tensor<3xf32>
  }, {
    stablehlo.return %x : tensor<3xf32>
  }) : (tensor<i1>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

func.func @main(%x: tensor<4x3xf32>, %s: tensor<3xf32>, %m: tensor<3xf32>) -> tensor<4x3xf32> {
  %0 = "stablehlo.batch_norm_inference"(%x, %s, %m, %m, %s) <{epsilon = 1.000000e-03 : f32, feature_index = 1 : i64}> : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %1, %2, %3 = "stablehlo.batch_norm_training"(%0, %s, %m) <{epsilon = 1.000000e-03 : f32, feature_index = 1 : i64}> : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  return %1 : tensor<4x3xf32>
}

func.func @main(%a: tensor<f32>, %b: tensor<f32>) -> tensor<4x5xf32> {
  %0 = stablehlo.constant dense<[4, 5]> : tensor<2xi64>
  %1 = stablehlo.rng %a, %b, %0, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}

func.func @main(%a: tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xf32>) {
  %0, %1 = stablehlo.rng_bit_generator %a, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x5xui32>)
  %2 = stablehlo.convert %1 : (tensor<3x5xui32>) -> tensor<3x5xf32>
  return %0, %2 : tensor<2xui64>, tensor<3x5xf32>
}

func.func @main(%x: tensor<2x3xi8>, %y: tensor<2x3xi8>) -> tensor<2x3xi8> {
  %0 = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%a: tensor<i8>, %b: tensor<i8>):
    %1 = stablehlo.add %a, %b : tensor<i8>
    stablehlo.return %1 : tensor<i8>
  }) : (tensor<2x3xi8>, tensor<2x3xi8>) -> tensor<2x3xi8>
  return %0 : tensor<2x3xi8>
}

func.func @main(%x: tensor<4x4xf32>, %y: tensor<4x2xf32>) -> tensor<4x2xf32> {
  %0 = "stablehlo.triangular_solve"(%x, %y) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose TRANSPOSE>, unit_diagonal = false}> : (tensor<4x4xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

func.func @main(%x: tensor<6x6xf32>, %i: tensor<4xi32>, %w: tensor<6x3xf32>) -> tensor<4x3xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 6>}> : (tensor<6x6xf32>, tensor<4xi32>) -> tensor<4x6xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
  %4 = stablehlo.maximum %1, %3 : tensor<4x3xf32>
  return %4 : tensor<4x3xf32>
}

func.func @main(%x: tensor<2x8xf32>) -> tensor<2x5xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = RFFT, length = [8] : (tensor<2x8xf32>) -> tensor<2x5xcomplex<f32>>
  return %0 : tensor<2x5xcomplex<f32>>
}
