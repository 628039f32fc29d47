module @train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3x1x32xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<32xf32> {tf.aliasing_output = 1 : i32}, %arg2: tensor<3x3x32x64xf32> {tf.aliasing_output = 2 : i32}, %arg3: tensor<64xf32> {tf.aliasing_output = 3 : i32}, %arg4: tensor<3136x128xf32> {tf.aliasing_output = 4 : i32}, %arg5: tensor<128xf32> {tf.aliasing_output = 5 : i32}, %arg6: tensor<128x10xf32> {tf.aliasing_output = 6 : i32}, %arg7: tensor<10xf32> {tf.aliasing_output = 7 : i32}, %arg8: tensor<3x3x1x32xf32> {tf.aliasing_output = 8 : i32}, %arg9: tensor<3x3x1x32xf32> {tf.aliasing_output = 9 : i32}, %arg10: tensor<32xf32> {tf.aliasing_output = 10 : i32}, %arg11: tensor<32xf32> {tf.aliasing_output = 11 : i32}, %arg12: tensor<3x3x32x64xf32> {tf.aliasing_output = 12 : i32}, %arg13: tensor<3x3x32x64xf32> {tf.aliasing_output = 13 : i32}, %arg14: tensor<64xf32> {tf.aliasing_output = 14 : i32}, %arg15: tensor<64xf32> {tf.aliasing_output = 15 : i32}, %arg16: tensor<3136x128xf32> {tf.aliasing_output = 16 : i32}, %arg17: tensor<3136x128xf32> {tf.aliasing_output = 17 : i32}, %arg18: tensor<128xf32> {tf.aliasing_output = 18 : i32}, %arg19: tensor<128xf32> {tf.aliasing_output = 19 : i32}, %arg20: tensor<128x10xf32> {tf.aliasing_output = 20 : i32}, %arg21: tensor<128x10xf32> {tf.aliasing_output = 21 : i32}, %arg22: tensor<10xf32> {tf.aliasing_output = 22 : i32}, %arg23: tensor<10xf32> {tf.aliasing_output = 23 : i32}, %arg24: tensor<ui32> {tf.aliasing_output = 24 : i32}, %arg25: tensor<2xui32> {tf.aliasing_output = 25 : i32}, %arg26: tensor<4x28x28xui8>, %arg27: tensor<4xui8>, %arg28: tensor<4xf32>, %arg29: tensor<6xf32>, %arg30: tensor<13xf32>) -> (tensor<3x3x1x32xf32>, tensor<32xf32>, tensor<3x3x32x64xf32>, tensor<64xf32>, tensor<3136x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<3x3x1x32xf32>, tensor<3x3x1x32xf32>, tensor<32xf32>, tensor<32xf32>, tensor<3x3x32x64xf32>, tensor<3x3x32x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<3136x128xf32>, tensor<3136x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<10xf32>, tensor<ui32>, tensor<2xui32>, tensor<6xf32>) {
    %0 = stablehlo.slice %arg30 [0:1] : (tensor<13xf32>) -> tensor<1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1xf32>) -> tensor<f32>
    %2 = stablehlo.slice %arg30 [1:2] : (tensor<13xf32>) -> tensor<1xf32>
    %3 = stablehlo.reshape %2 : (tensor<1xf32>) -> tensor<f32>
    %4 = stablehlo.slice %arg30 [2:3] : (tensor<13xf32>) -> tensor<1xf32>
    %5 = stablehlo.reshape %4 : (tensor<1xf32>) -> tensor<f32>
    %6 = stablehlo.slice %arg30 [3:4] : (tensor<13xf32>) -> tensor<1xf32>
    %7 = stablehlo.reshape %6 : (tensor<1xf32>) -> tensor<f32>
    %8 = stablehlo.slice %arg30 [4:5] : (tensor<13xf32>) -> tensor<1xf32>
    %9 = stablehlo.reshape %8 : (tensor<1xf32>) -> tensor<f32>
    %10 = stablehlo.slice %arg30 [5:6] : (tensor<13xf32>) -> tensor<1xf32>
    %11 = stablehlo.reshape %10 : (tensor<1xf32>) -> tensor<f32>
    %12 = stablehlo.slice %arg30 [6:7] : (tensor<13xf32>) -> tensor<1xf32>
    %13 = stablehlo.reshape %12 : (tensor<1xf32>) -> tensor<f32>
    %14 = stablehlo.slice %arg30 [7:8] : (tensor<13xf32>) -> tensor<1xf32>
    %15 = stablehlo.reshape %14 : (tensor<1xf32>) -> tensor<f32>
    %16 = stablehlo.slice %arg30 [8:9] : (tensor<13xf32>) -> tensor<1xf32>
    %17 = stablehlo.reshape %16 : (tensor<1xf32>) -> tensor<f32>
    %18 = stablehlo.slice %arg30 [9:10] : (tensor<13xf32>) -> tensor<1xf32>
    %19 = stablehlo.reshape %18 : (tensor<1xf32>) -> tensor<f32>
    %20 = stablehlo.slice %arg30 [10:11] : (tensor<13xf32>) -> tensor<1xf32>
    %21 = stablehlo.reshape %20 : (tensor<1xf32>) -> tensor<f32>
    %22 = stablehlo.slice %arg30 [11:12] : (tensor<13xf32>) -> tensor<1xf32>
    %23 = stablehlo.reshape %22 : (tensor<1xf32>) -> tensor<f32>
    %24 = stablehlo.slice %arg30 [12:13] : (tensor<13xf32>) -> tensor<1xf32>
    %25 = stablehlo.reshape %24 : (tensor<1xf32>) -> tensor<f32>
    %26 = stablehlo.constant dense<1> : tensor<ui32>
    %27 = stablehlo.convert %arg26 : (tensor<4x28x28xui8>) -> tensor<4x28x28xf32>
    %28 = stablehlo.constant dense<255.0> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [] : (tensor<f32>) -> tensor<4x28x28xf32>
    %30 = stablehlo.divide %27, %29 : tensor<4x28x28xf32>
    %31 = stablehlo.reshape %30 : (tensor<4x28x28xf32>) -> tensor<4x28x28x1xf32>
    %32 = stablehlo.convolution(%31, %arg0) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x28x28x1xf32>, tensor<3x3x1x32xf32>) -> tensor<4x28x28x32xf32>
    %33 = stablehlo.broadcast_in_dim %arg1, dims = [3] : (tensor<32xf32>) -> tensor<4x28x28x32xf32>
    %34 = stablehlo.add %32, %33 : tensor<4x28x28x32xf32>
    %35 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %36 = "stablehlo.reduce_window"(%34, %35) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [0, 0], [0, 0], [0, 0]]> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
      ^bb0(%i37: tensor<f32>, %i38: tensor<f32>):
      %39 = stablehlo.maximum %i37, %i38 : tensor<f32>
      stablehlo.return %39 : tensor<f32>
    }) : (tensor<4x28x28x32xf32>, tensor<f32>) -> tensor<4x14x14x32xf32>
    %40 = stablehlo.constant dense<0.0> : tensor<f32>
    %41 = stablehlo.broadcast_in_dim %40, dims = [] : (tensor<f32>) -> tensor<4x14x14x32xf32>
    %42 = stablehlo.maximum %36, %41 : tensor<4x14x14x32xf32>
    %43 = stablehlo.convolution(%42, %arg2) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x14x14x32xf32>, tensor<3x3x32x64xf32>) -> tensor<4x14x14x64xf32>
    %44 = stablehlo.broadcast_in_dim %arg3, dims = [3] : (tensor<64xf32>) -> tensor<4x14x14x64xf32>
    %45 = stablehlo.add %43, %44 : tensor<4x14x14x64xf32>
    %46 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %47 = "stablehlo.reduce_window"(%45, %46) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [0, 0], [0, 0], [0, 0]]> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
      ^bb0(%i48: tensor<f32>, %i49: tensor<f32>):
      %50 = stablehlo.maximum %i48, %i49 : tensor<f32>
      stablehlo.return %50 : tensor<f32>
    }) : (tensor<4x14x14x64xf32>, tensor<f32>) -> tensor<4x7x7x64xf32>
    %51 = stablehlo.broadcast_in_dim %40, dims = [] : (tensor<f32>) -> tensor<4x7x7x64xf32>
    %52 = stablehlo.maximum %47, %51 : tensor<4x7x7x64xf32>
    %53 = stablehlo.reshape %52 : (tensor<4x7x7x64xf32>) -> tensor<4x3136xf32>
    %54 = stablehlo.dot_general %53, %arg4, contracting_dims = [1] x [0] : (tensor<4x3136xf32>, tensor<3136x128xf32>) -> tensor<4x128xf32>
    %55 = stablehlo.broadcast_in_dim %arg5, dims = [1] : (tensor<128xf32>) -> tensor<4x128xf32>
    %56 = stablehlo.add %54, %55 : tensor<4x128xf32>
    %57 = stablehlo.broadcast_in_dim %40, dims = [] : (tensor<f32>) -> tensor<4x128xf32>
    %58 = stablehlo.maximum %56, %57 : tensor<4x128xf32>
    %59 = stablehlo.dot_general %58, %arg6, contracting_dims = [1] x [0] : (tensor<4x128xf32>, tensor<128x10xf32>) -> tensor<4x10xf32>
    %60 = stablehlo.broadcast_in_dim %arg7, dims = [1] : (tensor<10xf32>) -> tensor<4x10xf32>
    %61 = stablehlo.add %59, %60 : tensor<4x10xf32>
    %62 = stablehlo.convert %arg27 : (tensor<4xui8>) -> tensor<4xi32>
    %63 = stablehlo.iota dim = 1 : tensor<4x10xi32>
    %64 = stablehlo.reshape %62 : (tensor<4xi32>) -> tensor<4x1xi32>
    %65 = stablehlo.broadcast_in_dim %64, dims = [0, 1] : (tensor<4x1xi32>) -> tensor<4x10xi32>
    %66 = stablehlo.compare EQ, %65, %63, SIGNED : (tensor<4x10xi32>, tensor<4x10xi32>) -> tensor<4x10xi1>
    %67 = stablehlo.broadcast_in_dim %40, dims = [] : (tensor<f32>) -> tensor<4x10xf32>
    %68 = stablehlo.select %66, %61, %67 : tensor<4x10xi1>, tensor<4x10xf32>
    %69 = stablehlo.constant dense<0.0> : tensor<f32>
    %70 = stablehlo.reduce(%68 init: %69) applies stablehlo.add across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
    %71 = stablehlo.reshape %70 : (tensor<4xf32>) -> tensor<4x1xf32>
    %72 = stablehlo.broadcast_in_dim %71, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x10xf32>
    %73 = stablehlo.compare GT, %61, %72, FLOAT : (tensor<4x10xf32>, tensor<4x10xf32>) -> tensor<4x10xi1>
    %74 = stablehlo.compare EQ, %61, %72, FLOAT : (tensor<4x10xf32>, tensor<4x10xf32>) -> tensor<4x10xi1>
    %75 = stablehlo.compare LT, %63, %65, SIGNED : (tensor<4x10xi32>, tensor<4x10xi32>) -> tensor<4x10xi1>
    %76 = stablehlo.and %74, %75 : tensor<4x10xi1>
    %77 = stablehlo.or %73, %76 : tensor<4x10xi1>
    %78 = stablehlo.convert %77 : (tensor<4x10xi1>) -> tensor<4x10xi32>
    %79 = stablehlo.constant dense<0> : tensor<i32>
    %80 = stablehlo.reduce(%78 init: %79) applies stablehlo.add across dimensions = [1] : (tensor<4x10xi32>, tensor<i32>) -> tensor<4xi32>
    %81 = stablehlo.constant dense<0> : tensor<i32>
    %82 = stablehlo.broadcast_in_dim %81, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %83 = stablehlo.compare GE, %62, %82, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %84 = stablehlo.constant dense<10> : tensor<i32>
    %85 = stablehlo.broadcast_in_dim %84, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %86 = stablehlo.compare LT, %62, %85, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %87 = stablehlo.and %83, %86 : tensor<4xi1>
    %88 = stablehlo.compare EQ, %70, %70, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %89 = stablehlo.and %87, %88 : tensor<4xi1>
    %90 = stablehlo.constant dense<1> : tensor<i32>
    %91 = stablehlo.broadcast_in_dim %90, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %92 = stablehlo.compare LT, %80, %91, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %93 = stablehlo.and %92, %89 : tensor<4xi1>
    %94 = stablehlo.convert %93 : (tensor<4xi1>) -> tensor<4xf32>
    %95 = stablehlo.multiply %94, %arg28 : tensor<4xf32>
    %96 = stablehlo.constant dense<0.0> : tensor<f32>
    %97 = stablehlo.reduce(%95 init: %96) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %98 = stablehlo.constant dense<0.0> : tensor<f32>
    %99 = stablehlo.reduce(%arg28 init: %98) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %100 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %101 = stablehlo.reduce(%61 init: %100) applies stablehlo.maximum across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
    %102 = stablehlo.reshape %101 : (tensor<4xf32>) -> tensor<4x1xf32>
    %103 = stablehlo.broadcast_in_dim %102, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x10xf32>
    %104 = stablehlo.subtract %61, %103 : tensor<4x10xf32>
    %105 = stablehlo.exponential %104 : tensor<4x10xf32>
    %106 = stablehlo.constant dense<0.0> : tensor<f32>
    %107 = stablehlo.reduce(%105 init: %106) applies stablehlo.add across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
    %108 = stablehlo.log %107 : tensor<4xf32>
    %109 = stablehlo.select %66, %104, %67 : tensor<4x10xi1>, tensor<4x10xf32>
    %110 = stablehlo.constant dense<0.0> : tensor<f32>
    %111 = stablehlo.reduce(%109 init: %110) applies stablehlo.add across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
    %112 = stablehlo.subtract %108, %111 : tensor<4xf32>
    %113 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %114 = stablehlo.broadcast_in_dim %113, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %115 = stablehlo.select %87, %112, %114 : tensor<4xi1>, tensor<4xf32>
    %116 = stablehlo.broadcast_in_dim %40, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %117 = stablehlo.compare EQ, %arg28, %116, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %118 = stablehlo.multiply %115, %arg28 : tensor<4xf32>
    %119 = stablehlo.select %117, %116, %118 : tensor<4xi1>, tensor<4xf32>
    %120 = stablehlo.constant dense<0.0> : tensor<f32>
    %121 = stablehlo.reduce(%119 init: %120) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %122 = stablehlo.multiply %99, %40 : tensor<f32>
    %123 = stablehlo.compare EQ, %99, %122, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %124 = stablehlo.constant dense<1.0> : tensor<f32>
    %125 = stablehlo.add %99, %124 : tensor<f32>
    %126 = stablehlo.select %123, %125, %99 : tensor<i1>, tensor<f32>
    %127 = stablehlo.divide %124, %126 : tensor<f32>
    %128 = stablehlo.broadcast_in_dim %127, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %129 = stablehlo.select %117, %116, %128 : tensor<4xi1>, tensor<4xf32>
    %130 = stablehlo.multiply %129, %arg28 : tensor<4xf32>
    %131 = stablehlo.select %87, %130, %116 : tensor<4xi1>, tensor<4xf32>
    %132 = stablehlo.negate %131 : tensor<4xf32>
    %133 = stablehlo.broadcast_in_dim %132, dims = [0] : (tensor<4xf32>) -> tensor<4x10xf32>
    %134 = stablehlo.select %66, %133, %67 : tensor<4x10xi1>, tensor<4x10xf32>
    %135 = stablehlo.divide %131, %107 : tensor<4xf32>
    %136 = stablehlo.broadcast_in_dim %135, dims = [0] : (tensor<4xf32>) -> tensor<4x10xf32>
    %137 = stablehlo.multiply %136, %105 : tensor<4x10xf32>
    %138 = stablehlo.add %134, %137 : tensor<4x10xf32>
    %139 = stablehlo.constant dense<0.0> : tensor<f32>
    %140 = stablehlo.reduce(%138 init: %139) applies stablehlo.add across dimensions = [0] : (tensor<4x10xf32>, tensor<f32>) -> tensor<10xf32>
    %141 = stablehlo.dot_general %138, %arg6, contracting_dims = [1] x [1] : (tensor<4x10xf32>, tensor<128x10xf32>) -> tensor<4x128xf32>
    %142 = stablehlo.dot_general %58, %138, contracting_dims = [0] x [0] : (tensor<4x128xf32>, tensor<4x10xf32>) -> tensor<128x10xf32>
    %143 = stablehlo.compare GT, %58, %57, FLOAT : (tensor<4x128xf32>, tensor<4x128xf32>) -> tensor<4x128xi1>
    %144 = stablehlo.select %143, %141, %57 : tensor<4x128xi1>, tensor<4x128xf32>
    %145 = stablehlo.constant dense<0.0> : tensor<f32>
    %146 = stablehlo.reduce(%144 init: %145) applies stablehlo.add across dimensions = [0] : (tensor<4x128xf32>, tensor<f32>) -> tensor<128xf32>
    %147 = stablehlo.dot_general %144, %arg4, contracting_dims = [1] x [1] : (tensor<4x128xf32>, tensor<3136x128xf32>) -> tensor<4x3136xf32>
    %148 = stablehlo.dot_general %53, %144, contracting_dims = [0] x [0] : (tensor<4x3136xf32>, tensor<4x128xf32>) -> tensor<3136x128xf32>
    %149 = stablehlo.reshape %147 : (tensor<4x3136xf32>) -> tensor<4x7x7x64xf32>
    %150 = stablehlo.compare GT, %52, %51, FLOAT : (tensor<4x7x7x64xf32>, tensor<4x7x7x64xf32>) -> tensor<4x7x7x64xi1>
    %151 = stablehlo.select %150, %149, %51 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xf32>
    %152 = stablehlo.slice %45 [0:4, 0:13:2, 0:13:2, 0:64] : (tensor<4x14x14x64xf32>) -> tensor<4x7x7x64xf32>
    %153 = stablehlo.broadcast_in_dim %81, dims = [] : (tensor<i32>) -> tensor<4x7x7x64xi32>
    %154 = stablehlo.convert %153 : (tensor<4x7x7x64xi32>) -> tensor<4x7x7x64xui8>
    %155 = stablehlo.slice %45 [0:4, 0:13:2, 1:14:2, 0:64] : (tensor<4x14x14x64xf32>) -> tensor<4x7x7x64xf32>
    %156 = stablehlo.compare GE, %152, %155, FLOAT : (tensor<4x7x7x64xf32>, tensor<4x7x7x64xf32>) -> tensor<4x7x7x64xi1>
    %157 = stablehlo.compare NE, %152, %152, FLOAT : (tensor<4x7x7x64xf32>, tensor<4x7x7x64xf32>) -> tensor<4x7x7x64xi1>
    %158 = stablehlo.or %156, %157 : tensor<4x7x7x64xi1>
    %159 = stablehlo.constant dense<1> : tensor<ui8>
    %160 = stablehlo.broadcast_in_dim %159, dims = [] : (tensor<ui8>) -> tensor<4x7x7x64xui8>
    %161 = stablehlo.select %158, %152, %155 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xf32>
    %162 = stablehlo.select %158, %154, %160 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xui8>
    %163 = stablehlo.slice %45 [0:4, 1:14:2, 0:13:2, 0:64] : (tensor<4x14x14x64xf32>) -> tensor<4x7x7x64xf32>
    %164 = stablehlo.compare GE, %161, %163, FLOAT : (tensor<4x7x7x64xf32>, tensor<4x7x7x64xf32>) -> tensor<4x7x7x64xi1>
    %165 = stablehlo.compare NE, %161, %161, FLOAT : (tensor<4x7x7x64xf32>, tensor<4x7x7x64xf32>) -> tensor<4x7x7x64xi1>
    %166 = stablehlo.or %164, %165 : tensor<4x7x7x64xi1>
    %167 = stablehlo.constant dense<2> : tensor<ui8>
    %168 = stablehlo.broadcast_in_dim %167, dims = [] : (tensor<ui8>) -> tensor<4x7x7x64xui8>
    %169 = stablehlo.select %166, %161, %163 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xf32>
    %170 = stablehlo.select %166, %162, %168 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xui8>
    %171 = stablehlo.slice %45 [0:4, 1:14:2, 1:14:2, 0:64] : (tensor<4x14x14x64xf32>) -> tensor<4x7x7x64xf32>
    %172 = stablehlo.compare GE, %169, %171, FLOAT : (tensor<4x7x7x64xf32>, tensor<4x7x7x64xf32>) -> tensor<4x7x7x64xi1>
    %173 = stablehlo.compare NE, %169, %169, FLOAT : (tensor<4x7x7x64xf32>, tensor<4x7x7x64xf32>) -> tensor<4x7x7x64xi1>
    %174 = stablehlo.or %172, %173 : tensor<4x7x7x64xi1>
    %175 = stablehlo.constant dense<3> : tensor<ui8>
    %176 = stablehlo.broadcast_in_dim %175, dims = [] : (tensor<ui8>) -> tensor<4x7x7x64xui8>
    %177 = stablehlo.select %174, %170, %176 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xui8>
    %178 = stablehlo.optimization_barrier %177 : tensor<4x7x7x64xui8>
    %179 = stablehlo.constant dense<0> : tensor<ui8>
    %180 = stablehlo.broadcast_in_dim %179, dims = [] : (tensor<ui8>) -> tensor<4x7x7x64xui8>
    %181 = stablehlo.compare EQ, %178, %180, UNSIGNED : (tensor<4x7x7x64xui8>, tensor<4x7x7x64xui8>) -> tensor<4x7x7x64xi1>
    %182 = stablehlo.select %181, %151, %51 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xf32>
    %183 = stablehlo.pad %182, %40, low = [0, 0, 0, 0], high = [0, 1, 1, 0], interior = [0, 1, 1, 0] : (tensor<4x7x7x64xf32>, tensor<f32>) -> tensor<4x14x14x64xf32>
    %184 = stablehlo.compare EQ, %178, %160, UNSIGNED : (tensor<4x7x7x64xui8>, tensor<4x7x7x64xui8>) -> tensor<4x7x7x64xi1>
    %185 = stablehlo.select %184, %151, %51 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xf32>
    %186 = stablehlo.pad %185, %40, low = [0, 0, 1, 0], high = [0, 1, 0, 0], interior = [0, 1, 1, 0] : (tensor<4x7x7x64xf32>, tensor<f32>) -> tensor<4x14x14x64xf32>
    %187 = stablehlo.add %183, %186 : tensor<4x14x14x64xf32>
    %188 = stablehlo.compare EQ, %178, %168, UNSIGNED : (tensor<4x7x7x64xui8>, tensor<4x7x7x64xui8>) -> tensor<4x7x7x64xi1>
    %189 = stablehlo.select %188, %151, %51 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xf32>
    %190 = stablehlo.pad %189, %40, low = [0, 1, 0, 0], high = [0, 0, 1, 0], interior = [0, 1, 1, 0] : (tensor<4x7x7x64xf32>, tensor<f32>) -> tensor<4x14x14x64xf32>
    %191 = stablehlo.add %187, %190 : tensor<4x14x14x64xf32>
    %192 = stablehlo.compare EQ, %178, %176, UNSIGNED : (tensor<4x7x7x64xui8>, tensor<4x7x7x64xui8>) -> tensor<4x7x7x64xi1>
    %193 = stablehlo.select %192, %151, %51 : tensor<4x7x7x64xi1>, tensor<4x7x7x64xf32>
    %194 = stablehlo.pad %193, %40, low = [0, 1, 1, 0], high = [0, 0, 0, 0], interior = [0, 1, 1, 0] : (tensor<4x7x7x64xf32>, tensor<f32>) -> tensor<4x14x14x64xf32>
    %195 = stablehlo.add %191, %194 : tensor<4x14x14x64xf32>
    %196 = stablehlo.constant dense<0.0> : tensor<f32>
    %197 = stablehlo.reduce(%195 init: %196) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<4x14x14x64xf32>, tensor<f32>) -> tensor<64xf32>
    %198 = stablehlo.reverse %arg2, dims = [0, 1] : tensor<3x3x32x64xf32>
    %199 = stablehlo.convolution(%195, %198) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x14x14x64xf32>, tensor<3x3x32x64xf32>) -> tensor<4x14x14x32xf32>
    %200 = stablehlo.convolution(%42, %195) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x14x14x32xf32>, tensor<4x14x14x64xf32>) -> tensor<3x3x32x64xf32>
    %201 = stablehlo.compare GT, %42, %41, FLOAT : (tensor<4x14x14x32xf32>, tensor<4x14x14x32xf32>) -> tensor<4x14x14x32xi1>
    %202 = stablehlo.select %201, %199, %41 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xf32>
    %203 = stablehlo.slice %34 [0:4, 0:27:2, 0:27:2, 0:32] : (tensor<4x28x28x32xf32>) -> tensor<4x14x14x32xf32>
    %204 = stablehlo.broadcast_in_dim %81, dims = [] : (tensor<i32>) -> tensor<4x14x14x32xi32>
    %205 = stablehlo.convert %204 : (tensor<4x14x14x32xi32>) -> tensor<4x14x14x32xui8>
    %206 = stablehlo.slice %34 [0:4, 0:27:2, 1:28:2, 0:32] : (tensor<4x28x28x32xf32>) -> tensor<4x14x14x32xf32>
    %207 = stablehlo.compare GE, %203, %206, FLOAT : (tensor<4x14x14x32xf32>, tensor<4x14x14x32xf32>) -> tensor<4x14x14x32xi1>
    %208 = stablehlo.compare NE, %203, %203, FLOAT : (tensor<4x14x14x32xf32>, tensor<4x14x14x32xf32>) -> tensor<4x14x14x32xi1>
    %209 = stablehlo.or %207, %208 : tensor<4x14x14x32xi1>
    %210 = stablehlo.broadcast_in_dim %159, dims = [] : (tensor<ui8>) -> tensor<4x14x14x32xui8>
    %211 = stablehlo.select %209, %203, %206 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xf32>
    %212 = stablehlo.select %209, %205, %210 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xui8>
    %213 = stablehlo.slice %34 [0:4, 1:28:2, 0:27:2, 0:32] : (tensor<4x28x28x32xf32>) -> tensor<4x14x14x32xf32>
    %214 = stablehlo.compare GE, %211, %213, FLOAT : (tensor<4x14x14x32xf32>, tensor<4x14x14x32xf32>) -> tensor<4x14x14x32xi1>
    %215 = stablehlo.compare NE, %211, %211, FLOAT : (tensor<4x14x14x32xf32>, tensor<4x14x14x32xf32>) -> tensor<4x14x14x32xi1>
    %216 = stablehlo.or %214, %215 : tensor<4x14x14x32xi1>
    %217 = stablehlo.broadcast_in_dim %167, dims = [] : (tensor<ui8>) -> tensor<4x14x14x32xui8>
    %218 = stablehlo.select %216, %211, %213 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xf32>
    %219 = stablehlo.select %216, %212, %217 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xui8>
    %220 = stablehlo.slice %34 [0:4, 1:28:2, 1:28:2, 0:32] : (tensor<4x28x28x32xf32>) -> tensor<4x14x14x32xf32>
    %221 = stablehlo.compare GE, %218, %220, FLOAT : (tensor<4x14x14x32xf32>, tensor<4x14x14x32xf32>) -> tensor<4x14x14x32xi1>
    %222 = stablehlo.compare NE, %218, %218, FLOAT : (tensor<4x14x14x32xf32>, tensor<4x14x14x32xf32>) -> tensor<4x14x14x32xi1>
    %223 = stablehlo.or %221, %222 : tensor<4x14x14x32xi1>
    %224 = stablehlo.broadcast_in_dim %175, dims = [] : (tensor<ui8>) -> tensor<4x14x14x32xui8>
    %225 = stablehlo.select %223, %219, %224 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xui8>
    %226 = stablehlo.optimization_barrier %225 : tensor<4x14x14x32xui8>
    %227 = stablehlo.broadcast_in_dim %179, dims = [] : (tensor<ui8>) -> tensor<4x14x14x32xui8>
    %228 = stablehlo.compare EQ, %226, %227, UNSIGNED : (tensor<4x14x14x32xui8>, tensor<4x14x14x32xui8>) -> tensor<4x14x14x32xi1>
    %229 = stablehlo.select %228, %202, %41 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xf32>
    %230 = stablehlo.pad %229, %40, low = [0, 0, 0, 0], high = [0, 1, 1, 0], interior = [0, 1, 1, 0] : (tensor<4x14x14x32xf32>, tensor<f32>) -> tensor<4x28x28x32xf32>
    %231 = stablehlo.compare EQ, %226, %210, UNSIGNED : (tensor<4x14x14x32xui8>, tensor<4x14x14x32xui8>) -> tensor<4x14x14x32xi1>
    %232 = stablehlo.select %231, %202, %41 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xf32>
    %233 = stablehlo.pad %232, %40, low = [0, 0, 1, 0], high = [0, 1, 0, 0], interior = [0, 1, 1, 0] : (tensor<4x14x14x32xf32>, tensor<f32>) -> tensor<4x28x28x32xf32>
    %234 = stablehlo.add %230, %233 : tensor<4x28x28x32xf32>
    %235 = stablehlo.compare EQ, %226, %217, UNSIGNED : (tensor<4x14x14x32xui8>, tensor<4x14x14x32xui8>) -> tensor<4x14x14x32xi1>
    %236 = stablehlo.select %235, %202, %41 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xf32>
    %237 = stablehlo.pad %236, %40, low = [0, 1, 0, 0], high = [0, 0, 1, 0], interior = [0, 1, 1, 0] : (tensor<4x14x14x32xf32>, tensor<f32>) -> tensor<4x28x28x32xf32>
    %238 = stablehlo.add %234, %237 : tensor<4x28x28x32xf32>
    %239 = stablehlo.compare EQ, %226, %224, UNSIGNED : (tensor<4x14x14x32xui8>, tensor<4x14x14x32xui8>) -> tensor<4x14x14x32xi1>
    %240 = stablehlo.select %239, %202, %41 : tensor<4x14x14x32xi1>, tensor<4x14x14x32xf32>
    %241 = stablehlo.pad %240, %40, low = [0, 1, 1, 0], high = [0, 0, 0, 0], interior = [0, 1, 1, 0] : (tensor<4x14x14x32xf32>, tensor<f32>) -> tensor<4x28x28x32xf32>
    %242 = stablehlo.add %238, %241 : tensor<4x28x28x32xf32>
    %243 = stablehlo.constant dense<0.0> : tensor<f32>
    %244 = stablehlo.reduce(%242 init: %243) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<4x28x28x32xf32>, tensor<f32>) -> tensor<32xf32>
    %245 = stablehlo.convolution(%31, %242) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<4x28x28x1xf32>, tensor<4x28x28x32xf32>) -> tensor<3x3x1x32xf32>
    %246:16 = stablehlo.optimization_barrier %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %245, %244, %200, %197, %148, %146, %142, %140 : tensor<3x3x1x32xf32>, tensor<32xf32>, tensor<3x3x32x64xf32>, tensor<64xf32>, tensor<3136x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<3x3x1x32xf32>, tensor<32xf32>, tensor<3x3x32x64xf32>, tensor<64xf32>, tensor<3136x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>
    %247 = stablehlo.convert %arg24 : (tensor<ui32>) -> tensor<f32>
    %248 = stablehlo.maximum %247, %1 : tensor<f32>
    %249 = stablehlo.subtract %248, %1 : tensor<f32>
    %250 = stablehlo.add %247, %124 : tensor<f32>
    %251 = stablehlo.multiply %3, %5 : tensor<f32>
    %252 = stablehlo.minimum %249, %7 : tensor<f32>
    %253 = stablehlo.divide %252, %7 : tensor<f32>
    %254 = stablehlo.constant dense<3.1415927> : tensor<f32>
    %255 = stablehlo.multiply %253, %254 : tensor<f32>
    %256 = stablehlo.cosine %255 : tensor<f32>
    %257 = stablehlo.add %256, %124 : tensor<f32>
    %258 = stablehlo.multiply %257, %9 : tensor<f32>
    %259 = stablehlo.add %258, %11 : tensor<f32>
    %260 = stablehlo.compare LT, %247, %1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %261 = stablehlo.select %260, %251, %259 : tensor<i1>, tensor<f32>
    %262 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<3x3x1x32xf32>
    %263 = stablehlo.multiply %arg8, %262 : tensor<3x3x1x32xf32>
    %264 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<3x3x1x32xf32>
    %265 = stablehlo.multiply %246#8, %264 : tensor<3x3x1x32xf32>
    %266 = stablehlo.add %263, %265 : tensor<3x3x1x32xf32>
    %267 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<3x3x1x32xf32>
    %268 = stablehlo.multiply %arg9, %267 : tensor<3x3x1x32xf32>
    %269 = stablehlo.multiply %246#8, %246#8 : tensor<3x3x1x32xf32>
    %270 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<3x3x1x32xf32>
    %271 = stablehlo.multiply %269, %270 : tensor<3x3x1x32xf32>
    %272 = stablehlo.add %268, %271 : tensor<3x3x1x32xf32>
    %273 = stablehlo.multiply %250, %21 : tensor<f32>
    %274 = stablehlo.exponential_minus_one %273 : tensor<f32>
    %275 = stablehlo.negate %274 : tensor<f32>
    %276 = stablehlo.divide %261, %275 : tensor<f32>
    %277 = stablehlo.multiply %250, %23 : tensor<f32>
    %278 = stablehlo.exponential_minus_one %277 : tensor<f32>
    %279 = stablehlo.negate %278 : tensor<f32>
    %280 = stablehlo.rsqrt %279 : tensor<f32>
    %281 = stablehlo.sqrt %272 : tensor<3x3x1x32xf32>
    %282 = stablehlo.broadcast_in_dim %280, dims = [] : (tensor<f32>) -> tensor<3x3x1x32xf32>
    %283 = stablehlo.multiply %281, %282 : tensor<3x3x1x32xf32>
    %284 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<3x3x1x32xf32>
    %285 = stablehlo.add %283, %284 : tensor<3x3x1x32xf32>
    %286 = stablehlo.broadcast_in_dim %276, dims = [] : (tensor<f32>) -> tensor<3x3x1x32xf32>
    %287 = stablehlo.multiply %266, %286 : tensor<3x3x1x32xf32>
    %288 = stablehlo.divide %287, %285 : tensor<3x3x1x32xf32>
    %289 = stablehlo.subtract %246#0, %288 : tensor<3x3x1x32xf32>
    %290 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %291 = stablehlo.multiply %arg10, %290 : tensor<32xf32>
    %292 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %293 = stablehlo.multiply %246#9, %292 : tensor<32xf32>
    %294 = stablehlo.add %291, %293 : tensor<32xf32>
    %295 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %296 = stablehlo.multiply %arg11, %295 : tensor<32xf32>
    %297 = stablehlo.multiply %246#9, %246#9 : tensor<32xf32>
    %298 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %299 = stablehlo.multiply %297, %298 : tensor<32xf32>
    %300 = stablehlo.add %296, %299 : tensor<32xf32>
    %301 = stablehlo.sqrt %300 : tensor<32xf32>
    %302 = stablehlo.broadcast_in_dim %280, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %303 = stablehlo.multiply %301, %302 : tensor<32xf32>
    %304 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %305 = stablehlo.add %303, %304 : tensor<32xf32>
    %306 = stablehlo.broadcast_in_dim %276, dims = [] : (tensor<f32>) -> tensor<32xf32>
    %307 = stablehlo.multiply %294, %306 : tensor<32xf32>
    %308 = stablehlo.divide %307, %305 : tensor<32xf32>
    %309 = stablehlo.subtract %246#1, %308 : tensor<32xf32>
    %310 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<3x3x32x64xf32>
    %311 = stablehlo.multiply %arg12, %310 : tensor<3x3x32x64xf32>
    %312 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<3x3x32x64xf32>
    %313 = stablehlo.multiply %246#10, %312 : tensor<3x3x32x64xf32>
    %314 = stablehlo.add %311, %313 : tensor<3x3x32x64xf32>
    %315 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<3x3x32x64xf32>
    %316 = stablehlo.multiply %arg13, %315 : tensor<3x3x32x64xf32>
    %317 = stablehlo.multiply %246#10, %246#10 : tensor<3x3x32x64xf32>
    %318 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<3x3x32x64xf32>
    %319 = stablehlo.multiply %317, %318 : tensor<3x3x32x64xf32>
    %320 = stablehlo.add %316, %319 : tensor<3x3x32x64xf32>
    %321 = stablehlo.sqrt %320 : tensor<3x3x32x64xf32>
    %322 = stablehlo.broadcast_in_dim %280, dims = [] : (tensor<f32>) -> tensor<3x3x32x64xf32>
    %323 = stablehlo.multiply %321, %322 : tensor<3x3x32x64xf32>
    %324 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<3x3x32x64xf32>
    %325 = stablehlo.add %323, %324 : tensor<3x3x32x64xf32>
    %326 = stablehlo.broadcast_in_dim %276, dims = [] : (tensor<f32>) -> tensor<3x3x32x64xf32>
    %327 = stablehlo.multiply %314, %326 : tensor<3x3x32x64xf32>
    %328 = stablehlo.divide %327, %325 : tensor<3x3x32x64xf32>
    %329 = stablehlo.subtract %246#2, %328 : tensor<3x3x32x64xf32>
    %330 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %331 = stablehlo.multiply %arg14, %330 : tensor<64xf32>
    %332 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %333 = stablehlo.multiply %246#11, %332 : tensor<64xf32>
    %334 = stablehlo.add %331, %333 : tensor<64xf32>
    %335 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %336 = stablehlo.multiply %arg15, %335 : tensor<64xf32>
    %337 = stablehlo.multiply %246#11, %246#11 : tensor<64xf32>
    %338 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %339 = stablehlo.multiply %337, %338 : tensor<64xf32>
    %340 = stablehlo.add %336, %339 : tensor<64xf32>
    %341 = stablehlo.sqrt %340 : tensor<64xf32>
    %342 = stablehlo.broadcast_in_dim %280, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %343 = stablehlo.multiply %341, %342 : tensor<64xf32>
    %344 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %345 = stablehlo.add %343, %344 : tensor<64xf32>
    %346 = stablehlo.broadcast_in_dim %276, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %347 = stablehlo.multiply %334, %346 : tensor<64xf32>
    %348 = stablehlo.divide %347, %345 : tensor<64xf32>
    %349 = stablehlo.subtract %246#3, %348 : tensor<64xf32>
    %350 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<3136x128xf32>
    %351 = stablehlo.multiply %arg16, %350 : tensor<3136x128xf32>
    %352 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<3136x128xf32>
    %353 = stablehlo.multiply %246#12, %352 : tensor<3136x128xf32>
    %354 = stablehlo.add %351, %353 : tensor<3136x128xf32>
    %355 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<3136x128xf32>
    %356 = stablehlo.multiply %arg17, %355 : tensor<3136x128xf32>
    %357 = stablehlo.multiply %246#12, %246#12 : tensor<3136x128xf32>
    %358 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<3136x128xf32>
    %359 = stablehlo.multiply %357, %358 : tensor<3136x128xf32>
    %360 = stablehlo.add %356, %359 : tensor<3136x128xf32>
    %361 = stablehlo.sqrt %360 : tensor<3136x128xf32>
    %362 = stablehlo.broadcast_in_dim %280, dims = [] : (tensor<f32>) -> tensor<3136x128xf32>
    %363 = stablehlo.multiply %361, %362 : tensor<3136x128xf32>
    %364 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<3136x128xf32>
    %365 = stablehlo.add %363, %364 : tensor<3136x128xf32>
    %366 = stablehlo.broadcast_in_dim %276, dims = [] : (tensor<f32>) -> tensor<3136x128xf32>
    %367 = stablehlo.multiply %354, %366 : tensor<3136x128xf32>
    %368 = stablehlo.divide %367, %365 : tensor<3136x128xf32>
    %369 = stablehlo.subtract %246#4, %368 : tensor<3136x128xf32>
    %370 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %371 = stablehlo.multiply %arg18, %370 : tensor<128xf32>
    %372 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %373 = stablehlo.multiply %246#13, %372 : tensor<128xf32>
    %374 = stablehlo.add %371, %373 : tensor<128xf32>
    %375 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %376 = stablehlo.multiply %arg19, %375 : tensor<128xf32>
    %377 = stablehlo.multiply %246#13, %246#13 : tensor<128xf32>
    %378 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %379 = stablehlo.multiply %377, %378 : tensor<128xf32>
    %380 = stablehlo.add %376, %379 : tensor<128xf32>
    %381 = stablehlo.sqrt %380 : tensor<128xf32>
    %382 = stablehlo.broadcast_in_dim %280, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %383 = stablehlo.multiply %381, %382 : tensor<128xf32>
    %384 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %385 = stablehlo.add %383, %384 : tensor<128xf32>
    %386 = stablehlo.broadcast_in_dim %276, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %387 = stablehlo.multiply %374, %386 : tensor<128xf32>
    %388 = stablehlo.divide %387, %385 : tensor<128xf32>
    %389 = stablehlo.subtract %246#5, %388 : tensor<128xf32>
    %390 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %391 = stablehlo.multiply %arg20, %390 : tensor<128x10xf32>
    %392 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %393 = stablehlo.multiply %246#14, %392 : tensor<128x10xf32>
    %394 = stablehlo.add %391, %393 : tensor<128x10xf32>
    %395 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %396 = stablehlo.multiply %arg21, %395 : tensor<128x10xf32>
    %397 = stablehlo.multiply %246#14, %246#14 : tensor<128x10xf32>
    %398 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %399 = stablehlo.multiply %397, %398 : tensor<128x10xf32>
    %400 = stablehlo.add %396, %399 : tensor<128x10xf32>
    %401 = stablehlo.sqrt %400 : tensor<128x10xf32>
    %402 = stablehlo.broadcast_in_dim %280, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %403 = stablehlo.multiply %401, %402 : tensor<128x10xf32>
    %404 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %405 = stablehlo.add %403, %404 : tensor<128x10xf32>
    %406 = stablehlo.broadcast_in_dim %276, dims = [] : (tensor<f32>) -> tensor<128x10xf32>
    %407 = stablehlo.multiply %394, %406 : tensor<128x10xf32>
    %408 = stablehlo.divide %407, %405 : tensor<128x10xf32>
    %409 = stablehlo.subtract %246#6, %408 : tensor<128x10xf32>
    %410 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %411 = stablehlo.multiply %arg22, %410 : tensor<10xf32>
    %412 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %413 = stablehlo.multiply %246#15, %412 : tensor<10xf32>
    %414 = stablehlo.add %411, %413 : tensor<10xf32>
    %415 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %416 = stablehlo.multiply %arg23, %415 : tensor<10xf32>
    %417 = stablehlo.multiply %246#15, %246#15 : tensor<10xf32>
    %418 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %419 = stablehlo.multiply %417, %418 : tensor<10xf32>
    %420 = stablehlo.add %416, %419 : tensor<10xf32>
    %421 = stablehlo.sqrt %420 : tensor<10xf32>
    %422 = stablehlo.broadcast_in_dim %280, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %423 = stablehlo.multiply %421, %422 : tensor<10xf32>
    %424 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %425 = stablehlo.add %423, %424 : tensor<10xf32>
    %426 = stablehlo.broadcast_in_dim %276, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %427 = stablehlo.multiply %414, %426 : tensor<10xf32>
    %428 = stablehlo.divide %427, %425 : tensor<10xf32>
    %429 = stablehlo.subtract %246#7, %428 : tensor<10xf32>
    %430 = stablehlo.add %arg24, %26 : tensor<ui32>
    %431 = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %432 = stablehlo.reshape %121 : (tensor<f32>) -> tensor<1xf32>
    %433 = stablehlo.reshape %97 : (tensor<f32>) -> tensor<1xf32>
    %434 = stablehlo.reshape %99 : (tensor<f32>) -> tensor<1xf32>
    %435 = stablehlo.is_finite %121 : (tensor<f32>) -> tensor<i1>
    %436 = stablehlo.is_finite %99 : (tensor<f32>) -> tensor<i1>
    %437 = stablehlo.and %435, %436 : tensor<i1>
    %438 = stablehlo.select %437, %431, %247 : tensor<i1>, tensor<f32>
    %439 = stablehlo.reshape %438 : (tensor<f32>) -> tensor<1xf32>
    %440 = stablehlo.is_finite %97 : (tensor<f32>) -> tensor<i1>
    %441 = stablehlo.and %440, %436 : tensor<i1>
    %442 = stablehlo.select %441, %431, %247 : tensor<i1>, tensor<f32>
    %443 = stablehlo.reshape %442 : (tensor<f32>) -> tensor<1xf32>
    %444 = stablehlo.concatenate %432, %433, %434, %434, %439, %443, dim = 0 : (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<6xf32>
    %445 = stablehlo.constant dense<[true, true, true, true, false, false]> : tensor<6xi1>
    %446 = stablehlo.add %arg29, %444 : tensor<6xf32>
    %447 = stablehlo.minimum %arg29, %444 : tensor<6xf32>
    %448 = stablehlo.select %445, %446, %447 : tensor<6xi1>, tensor<6xf32>
    return %289, %309, %329, %349, %369, %389, %409, %429, %266, %272, %294, %300, %314, %320, %334, %340, %354, %360, %374, %380, %394, %400, %414, %420, %430, %arg25, %448 : tensor<3x3x1x32xf32>, tensor<32xf32>, tensor<3x3x32x64xf32>, tensor<64xf32>, tensor<3136x128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<3x3x1x32xf32>, tensor<3x3x1x32xf32>, tensor<32xf32>, tensor<32xf32>, tensor<3x3x32x64xf32>, tensor<3x3x32x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<3136x128xf32>, tensor<3136x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128x10xf32>, tensor<128x10xf32>, tensor<10xf32>, tensor<10xf32>, tensor<ui32>, tensor<2xui32>, tensor<6xf32>
  }
}
