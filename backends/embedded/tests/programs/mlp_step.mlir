module @train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<784x512xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<512xf32> {tf.aliasing_output = 1 : i32}, %arg2: tensor<512x512xf32> {tf.aliasing_output = 2 : i32}, %arg3: tensor<512xf32> {tf.aliasing_output = 3 : i32}, %arg4: tensor<512x10xf32> {tf.aliasing_output = 4 : i32}, %arg5: tensor<10xf32> {tf.aliasing_output = 5 : i32}, %arg6: tensor<784x512xf32> {tf.aliasing_output = 6 : i32}, %arg7: tensor<784x512xf32> {tf.aliasing_output = 7 : i32}, %arg8: tensor<512xf32> {tf.aliasing_output = 8 : i32}, %arg9: tensor<512xf32> {tf.aliasing_output = 9 : i32}, %arg10: tensor<512x512xf32> {tf.aliasing_output = 10 : i32}, %arg11: tensor<512x512xf32> {tf.aliasing_output = 11 : i32}, %arg12: tensor<512xf32> {tf.aliasing_output = 12 : i32}, %arg13: tensor<512xf32> {tf.aliasing_output = 13 : i32}, %arg14: tensor<512x10xf32> {tf.aliasing_output = 14 : i32}, %arg15: tensor<512x10xf32> {tf.aliasing_output = 15 : i32}, %arg16: tensor<10xf32> {tf.aliasing_output = 16 : i32}, %arg17: tensor<10xf32> {tf.aliasing_output = 17 : i32}, %arg18: tensor<ui32> {tf.aliasing_output = 18 : i32}, %arg19: tensor<2xui32> {tf.aliasing_output = 19 : i32}, %arg20: tensor<4x28x28xui8>, %arg21: tensor<4xui8>, %arg22: tensor<4xf32>, %arg23: tensor<6xf32>, %arg24: tensor<13xf32>) -> (tensor<784x512xf32>, tensor<512xf32>, tensor<512x512xf32>, tensor<512xf32>, tensor<512x10xf32>, tensor<10xf32>, tensor<784x512xf32>, tensor<784x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512x512xf32>, tensor<512x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512x10xf32>, tensor<512x10xf32>, tensor<10xf32>, tensor<10xf32>, tensor<ui32>, tensor<2xui32>, tensor<6xf32>) {
    %0 = stablehlo.slice %arg24 [0:1] : (tensor<13xf32>) -> tensor<1xf32>
    %1 = stablehlo.reshape %0 : (tensor<1xf32>) -> tensor<f32>
    %2 = stablehlo.slice %arg24 [1:2] : (tensor<13xf32>) -> tensor<1xf32>
    %3 = stablehlo.reshape %2 : (tensor<1xf32>) -> tensor<f32>
    %4 = stablehlo.slice %arg24 [2:3] : (tensor<13xf32>) -> tensor<1xf32>
    %5 = stablehlo.reshape %4 : (tensor<1xf32>) -> tensor<f32>
    %6 = stablehlo.slice %arg24 [3:4] : (tensor<13xf32>) -> tensor<1xf32>
    %7 = stablehlo.reshape %6 : (tensor<1xf32>) -> tensor<f32>
    %8 = stablehlo.slice %arg24 [4:5] : (tensor<13xf32>) -> tensor<1xf32>
    %9 = stablehlo.reshape %8 : (tensor<1xf32>) -> tensor<f32>
    %10 = stablehlo.slice %arg24 [5:6] : (tensor<13xf32>) -> tensor<1xf32>
    %11 = stablehlo.reshape %10 : (tensor<1xf32>) -> tensor<f32>
    %12 = stablehlo.slice %arg24 [6:7] : (tensor<13xf32>) -> tensor<1xf32>
    %13 = stablehlo.reshape %12 : (tensor<1xf32>) -> tensor<f32>
    %14 = stablehlo.slice %arg24 [7:8] : (tensor<13xf32>) -> tensor<1xf32>
    %15 = stablehlo.reshape %14 : (tensor<1xf32>) -> tensor<f32>
    %16 = stablehlo.slice %arg24 [8:9] : (tensor<13xf32>) -> tensor<1xf32>
    %17 = stablehlo.reshape %16 : (tensor<1xf32>) -> tensor<f32>
    %18 = stablehlo.slice %arg24 [9:10] : (tensor<13xf32>) -> tensor<1xf32>
    %19 = stablehlo.reshape %18 : (tensor<1xf32>) -> tensor<f32>
    %20 = stablehlo.slice %arg24 [10:11] : (tensor<13xf32>) -> tensor<1xf32>
    %21 = stablehlo.reshape %20 : (tensor<1xf32>) -> tensor<f32>
    %22 = stablehlo.slice %arg24 [11:12] : (tensor<13xf32>) -> tensor<1xf32>
    %23 = stablehlo.reshape %22 : (tensor<1xf32>) -> tensor<f32>
    %24 = stablehlo.slice %arg24 [12:13] : (tensor<13xf32>) -> tensor<1xf32>
    %25 = stablehlo.reshape %24 : (tensor<1xf32>) -> tensor<f32>
    %26 = stablehlo.constant dense<1> : tensor<ui32>
    %27 = stablehlo.convert %arg20 : (tensor<4x28x28xui8>) -> tensor<4x28x28xf32>
    %28 = stablehlo.constant dense<255.0> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [] : (tensor<f32>) -> tensor<4x28x28xf32>
    %30 = stablehlo.divide %27, %29 : tensor<4x28x28xf32>
    %31 = stablehlo.reshape %30 : (tensor<4x28x28xf32>) -> tensor<4x784xf32>
    %32 = stablehlo.dot_general %31, %arg0, contracting_dims = [1] x [0] : (tensor<4x784xf32>, tensor<784x512xf32>) -> tensor<4x512xf32>
    %33 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<512xf32>) -> tensor<4x512xf32>
    %34 = stablehlo.add %32, %33 : tensor<4x512xf32>
    %35 = stablehlo.constant dense<0.0> : tensor<f32>
    %36 = stablehlo.broadcast_in_dim %35, dims = [] : (tensor<f32>) -> tensor<4x512xf32>
    %37 = stablehlo.maximum %34, %36 : tensor<4x512xf32>
    %38 = stablehlo.dot_general %37, %arg2, contracting_dims = [1] x [0] : (tensor<4x512xf32>, tensor<512x512xf32>) -> tensor<4x512xf32>
    %39 = stablehlo.broadcast_in_dim %arg3, dims = [1] : (tensor<512xf32>) -> tensor<4x512xf32>
    %40 = stablehlo.add %38, %39 : tensor<4x512xf32>
    %41 = stablehlo.maximum %40, %36 : tensor<4x512xf32>
    %42 = stablehlo.dot_general %41, %arg4, contracting_dims = [1] x [0] : (tensor<4x512xf32>, tensor<512x10xf32>) -> tensor<4x10xf32>
    %43 = stablehlo.broadcast_in_dim %arg5, dims = [1] : (tensor<10xf32>) -> tensor<4x10xf32>
    %44 = stablehlo.add %42, %43 : tensor<4x10xf32>
    %45 = stablehlo.convert %arg21 : (tensor<4xui8>) -> tensor<4xi32>
    %46 = stablehlo.iota dim = 1 : tensor<4x10xi32>
    %47 = stablehlo.reshape %45 : (tensor<4xi32>) -> tensor<4x1xi32>
    %48 = stablehlo.broadcast_in_dim %47, dims = [0, 1] : (tensor<4x1xi32>) -> tensor<4x10xi32>
    %49 = stablehlo.compare EQ, %48, %46, SIGNED : (tensor<4x10xi32>, tensor<4x10xi32>) -> tensor<4x10xi1>
    %50 = stablehlo.broadcast_in_dim %35, dims = [] : (tensor<f32>) -> tensor<4x10xf32>
    %51 = stablehlo.select %49, %44, %50 : tensor<4x10xi1>, tensor<4x10xf32>
    %52 = stablehlo.constant dense<0.0> : tensor<f32>
    %53 = stablehlo.reduce(%51 init: %52) applies stablehlo.add across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
    %54 = stablehlo.reshape %53 : (tensor<4xf32>) -> tensor<4x1xf32>
    %55 = stablehlo.broadcast_in_dim %54, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x10xf32>
    %56 = stablehlo.compare GT, %44, %55, FLOAT : (tensor<4x10xf32>, tensor<4x10xf32>) -> tensor<4x10xi1>
    %57 = stablehlo.compare EQ, %44, %55, FLOAT : (tensor<4x10xf32>, tensor<4x10xf32>) -> tensor<4x10xi1>
    %58 = stablehlo.compare LT, %46, %48, SIGNED : (tensor<4x10xi32>, tensor<4x10xi32>) -> tensor<4x10xi1>
    %59 = stablehlo.and %57, %58 : tensor<4x10xi1>
    %60 = stablehlo.or %56, %59 : tensor<4x10xi1>
    %61 = stablehlo.convert %60 : (tensor<4x10xi1>) -> tensor<4x10xi32>
    %62 = stablehlo.constant dense<0> : tensor<i32>
    %63 = stablehlo.reduce(%61 init: %62) applies stablehlo.add across dimensions = [1] : (tensor<4x10xi32>, tensor<i32>) -> tensor<4xi32>
    %64 = stablehlo.constant dense<0> : tensor<i32>
    %65 = stablehlo.broadcast_in_dim %64, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %66 = stablehlo.compare GE, %45, %65, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %67 = stablehlo.constant dense<10> : tensor<i32>
    %68 = stablehlo.broadcast_in_dim %67, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %69 = stablehlo.compare LT, %45, %68, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %70 = stablehlo.and %66, %69 : tensor<4xi1>
    %71 = stablehlo.compare EQ, %53, %53, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %72 = stablehlo.and %70, %71 : tensor<4xi1>
    %73 = stablehlo.constant dense<1> : tensor<i32>
    %74 = stablehlo.broadcast_in_dim %73, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %75 = stablehlo.compare LT, %63, %74, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %76 = stablehlo.and %75, %72 : tensor<4xi1>
    %77 = stablehlo.convert %76 : (tensor<4xi1>) -> tensor<4xf32>
    %78 = stablehlo.multiply %77, %arg22 : tensor<4xf32>
    %79 = stablehlo.constant dense<0.0> : tensor<f32>
    %80 = stablehlo.reduce(%78 init: %79) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %81 = stablehlo.constant dense<0.0> : tensor<f32>
    %82 = stablehlo.reduce(%arg22 init: %81) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %83 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %84 = stablehlo.reduce(%44 init: %83) applies stablehlo.maximum across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
    %85 = stablehlo.reshape %84 : (tensor<4xf32>) -> tensor<4x1xf32>
    %86 = stablehlo.broadcast_in_dim %85, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x10xf32>
    %87 = stablehlo.subtract %44, %86 : tensor<4x10xf32>
    %88 = stablehlo.exponential %87 : tensor<4x10xf32>
    %89 = stablehlo.constant dense<0.0> : tensor<f32>
    %90 = stablehlo.reduce(%88 init: %89) applies stablehlo.add across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
    %91 = stablehlo.log %90 : tensor<4xf32>
    %92 = stablehlo.select %49, %87, %50 : tensor<4x10xi1>, tensor<4x10xf32>
    %93 = stablehlo.constant dense<0.0> : tensor<f32>
    %94 = stablehlo.reduce(%92 init: %93) applies stablehlo.add across dimensions = [1] : (tensor<4x10xf32>, tensor<f32>) -> tensor<4xf32>
    %95 = stablehlo.subtract %91, %94 : tensor<4xf32>
    %96 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %97 = stablehlo.broadcast_in_dim %96, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %98 = stablehlo.select %70, %95, %97 : tensor<4xi1>, tensor<4xf32>
    %99 = stablehlo.broadcast_in_dim %35, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %100 = stablehlo.compare EQ, %arg22, %99, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %101 = stablehlo.multiply %98, %arg22 : tensor<4xf32>
    %102 = stablehlo.select %100, %99, %101 : tensor<4xi1>, tensor<4xf32>
    %103 = stablehlo.constant dense<0.0> : tensor<f32>
    %104 = stablehlo.reduce(%102 init: %103) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %105 = stablehlo.multiply %82, %35 : tensor<f32>
    %106 = stablehlo.compare EQ, %82, %105, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %107 = stablehlo.constant dense<1.0> : tensor<f32>
    %108 = stablehlo.add %82, %107 : tensor<f32>
    %109 = stablehlo.select %106, %108, %82 : tensor<i1>, tensor<f32>
    %110 = stablehlo.divide %107, %109 : tensor<f32>
    %111 = stablehlo.broadcast_in_dim %110, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %112 = stablehlo.select %100, %99, %111 : tensor<4xi1>, tensor<4xf32>
    %113 = stablehlo.multiply %112, %arg22 : tensor<4xf32>
    %114 = stablehlo.select %70, %113, %99 : tensor<4xi1>, tensor<4xf32>
    %115 = stablehlo.negate %114 : tensor<4xf32>
    %116 = stablehlo.broadcast_in_dim %115, dims = [0] : (tensor<4xf32>) -> tensor<4x10xf32>
    %117 = stablehlo.select %49, %116, %50 : tensor<4x10xi1>, tensor<4x10xf32>
    %118 = stablehlo.divide %114, %90 : tensor<4xf32>
    %119 = stablehlo.broadcast_in_dim %118, dims = [0] : (tensor<4xf32>) -> tensor<4x10xf32>
    %120 = stablehlo.multiply %119, %88 : tensor<4x10xf32>
    %121 = stablehlo.add %117, %120 : tensor<4x10xf32>
    %122 = stablehlo.constant dense<0.0> : tensor<f32>
    %123 = stablehlo.reduce(%121 init: %122) applies stablehlo.add across dimensions = [0] : (tensor<4x10xf32>, tensor<f32>) -> tensor<10xf32>
    %124 = stablehlo.dot_general %121, %arg4, contracting_dims = [1] x [1] : (tensor<4x10xf32>, tensor<512x10xf32>) -> tensor<4x512xf32>
    %125 = stablehlo.dot_general %41, %121, contracting_dims = [0] x [0] : (tensor<4x512xf32>, tensor<4x10xf32>) -> tensor<512x10xf32>
    %126 = stablehlo.compare GT, %41, %36, FLOAT : (tensor<4x512xf32>, tensor<4x512xf32>) -> tensor<4x512xi1>
    %127 = stablehlo.select %126, %124, %36 : tensor<4x512xi1>, tensor<4x512xf32>
    %128 = stablehlo.constant dense<0.0> : tensor<f32>
    %129 = stablehlo.reduce(%127 init: %128) applies stablehlo.add across dimensions = [0] : (tensor<4x512xf32>, tensor<f32>) -> tensor<512xf32>
    %130 = stablehlo.dot_general %127, %arg2, contracting_dims = [1] x [1] : (tensor<4x512xf32>, tensor<512x512xf32>) -> tensor<4x512xf32>
    %131 = stablehlo.dot_general %37, %127, contracting_dims = [0] x [0] : (tensor<4x512xf32>, tensor<4x512xf32>) -> tensor<512x512xf32>
    %132 = stablehlo.compare GT, %37, %36, FLOAT : (tensor<4x512xf32>, tensor<4x512xf32>) -> tensor<4x512xi1>
    %133 = stablehlo.select %132, %130, %36 : tensor<4x512xi1>, tensor<4x512xf32>
    %134 = stablehlo.constant dense<0.0> : tensor<f32>
    %135 = stablehlo.reduce(%133 init: %134) applies stablehlo.add across dimensions = [0] : (tensor<4x512xf32>, tensor<f32>) -> tensor<512xf32>
    %136 = stablehlo.dot_general %31, %133, contracting_dims = [0] x [0] : (tensor<4x784xf32>, tensor<4x512xf32>) -> tensor<784x512xf32>
    %137:12 = stablehlo.optimization_barrier %arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %136, %135, %131, %129, %125, %123 : tensor<784x512xf32>, tensor<512xf32>, tensor<512x512xf32>, tensor<512xf32>, tensor<512x10xf32>, tensor<10xf32>, tensor<784x512xf32>, tensor<512xf32>, tensor<512x512xf32>, tensor<512xf32>, tensor<512x10xf32>, tensor<10xf32>
    %138 = stablehlo.convert %arg18 : (tensor<ui32>) -> tensor<f32>
    %139 = stablehlo.maximum %138, %1 : tensor<f32>
    %140 = stablehlo.subtract %139, %1 : tensor<f32>
    %141 = stablehlo.add %138, %107 : tensor<f32>
    %142 = stablehlo.multiply %3, %5 : tensor<f32>
    %143 = stablehlo.minimum %140, %7 : tensor<f32>
    %144 = stablehlo.divide %143, %7 : tensor<f32>
    %145 = stablehlo.constant dense<3.1415927> : tensor<f32>
    %146 = stablehlo.multiply %144, %145 : tensor<f32>
    %147 = stablehlo.cosine %146 : tensor<f32>
    %148 = stablehlo.add %147, %107 : tensor<f32>
    %149 = stablehlo.multiply %148, %9 : tensor<f32>
    %150 = stablehlo.add %149, %11 : tensor<f32>
    %151 = stablehlo.compare LT, %138, %1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %152 = stablehlo.select %151, %142, %150 : tensor<i1>, tensor<f32>
    %153 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<784x512xf32>
    %154 = stablehlo.multiply %arg6, %153 : tensor<784x512xf32>
    %155 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<784x512xf32>
    %156 = stablehlo.multiply %137#6, %155 : tensor<784x512xf32>
    %157 = stablehlo.add %154, %156 : tensor<784x512xf32>
    %158 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<784x512xf32>
    %159 = stablehlo.multiply %arg7, %158 : tensor<784x512xf32>
    %160 = stablehlo.multiply %137#6, %137#6 : tensor<784x512xf32>
    %161 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<784x512xf32>
    %162 = stablehlo.multiply %160, %161 : tensor<784x512xf32>
    %163 = stablehlo.add %159, %162 : tensor<784x512xf32>
    %164 = stablehlo.multiply %141, %21 : tensor<f32>
    %165 = stablehlo.exponential_minus_one %164 : tensor<f32>
    %166 = stablehlo.negate %165 : tensor<f32>
    %167 = stablehlo.divide %152, %166 : tensor<f32>
    %168 = stablehlo.multiply %141, %23 : tensor<f32>
    %169 = stablehlo.exponential_minus_one %168 : tensor<f32>
    %170 = stablehlo.negate %169 : tensor<f32>
    %171 = stablehlo.rsqrt %170 : tensor<f32>
    %172 = stablehlo.sqrt %163 : tensor<784x512xf32>
    %173 = stablehlo.broadcast_in_dim %171, dims = [] : (tensor<f32>) -> tensor<784x512xf32>
    %174 = stablehlo.multiply %172, %173 : tensor<784x512xf32>
    %175 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<784x512xf32>
    %176 = stablehlo.add %174, %175 : tensor<784x512xf32>
    %177 = stablehlo.broadcast_in_dim %167, dims = [] : (tensor<f32>) -> tensor<784x512xf32>
    %178 = stablehlo.multiply %157, %177 : tensor<784x512xf32>
    %179 = stablehlo.divide %178, %176 : tensor<784x512xf32>
    %180 = stablehlo.subtract %137#0, %179 : tensor<784x512xf32>
    %181 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %182 = stablehlo.multiply %arg8, %181 : tensor<512xf32>
    %183 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %184 = stablehlo.multiply %137#7, %183 : tensor<512xf32>
    %185 = stablehlo.add %182, %184 : tensor<512xf32>
    %186 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %187 = stablehlo.multiply %arg9, %186 : tensor<512xf32>
    %188 = stablehlo.multiply %137#7, %137#7 : tensor<512xf32>
    %189 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %190 = stablehlo.multiply %188, %189 : tensor<512xf32>
    %191 = stablehlo.add %187, %190 : tensor<512xf32>
    %192 = stablehlo.sqrt %191 : tensor<512xf32>
    %193 = stablehlo.broadcast_in_dim %171, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %194 = stablehlo.multiply %192, %193 : tensor<512xf32>
    %195 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %196 = stablehlo.add %194, %195 : tensor<512xf32>
    %197 = stablehlo.broadcast_in_dim %167, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %198 = stablehlo.multiply %185, %197 : tensor<512xf32>
    %199 = stablehlo.divide %198, %196 : tensor<512xf32>
    %200 = stablehlo.subtract %137#1, %199 : tensor<512xf32>
    %201 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %202 = stablehlo.multiply %arg10, %201 : tensor<512x512xf32>
    %203 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %204 = stablehlo.multiply %137#8, %203 : tensor<512x512xf32>
    %205 = stablehlo.add %202, %204 : tensor<512x512xf32>
    %206 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %207 = stablehlo.multiply %arg11, %206 : tensor<512x512xf32>
    %208 = stablehlo.multiply %137#8, %137#8 : tensor<512x512xf32>
    %209 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %210 = stablehlo.multiply %208, %209 : tensor<512x512xf32>
    %211 = stablehlo.add %207, %210 : tensor<512x512xf32>
    %212 = stablehlo.sqrt %211 : tensor<512x512xf32>
    %213 = stablehlo.broadcast_in_dim %171, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %214 = stablehlo.multiply %212, %213 : tensor<512x512xf32>
    %215 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %216 = stablehlo.add %214, %215 : tensor<512x512xf32>
    %217 = stablehlo.broadcast_in_dim %167, dims = [] : (tensor<f32>) -> tensor<512x512xf32>
    %218 = stablehlo.multiply %205, %217 : tensor<512x512xf32>
    %219 = stablehlo.divide %218, %216 : tensor<512x512xf32>
    %220 = stablehlo.subtract %137#2, %219 : tensor<512x512xf32>
    %221 = stablehlo.multiply %arg12, %181 : tensor<512xf32>
    %222 = stablehlo.multiply %137#9, %183 : tensor<512xf32>
    %223 = stablehlo.add %221, %222 : tensor<512xf32>
    %224 = stablehlo.multiply %arg13, %186 : tensor<512xf32>
    %225 = stablehlo.multiply %137#9, %137#9 : tensor<512xf32>
    %226 = stablehlo.multiply %225, %189 : tensor<512xf32>
    %227 = stablehlo.add %224, %226 : tensor<512xf32>
    %228 = stablehlo.sqrt %227 : tensor<512xf32>
    %229 = stablehlo.multiply %228, %193 : tensor<512xf32>
    %230 = stablehlo.add %229, %195 : tensor<512xf32>
    %231 = stablehlo.multiply %223, %197 : tensor<512xf32>
    %232 = stablehlo.divide %231, %230 : tensor<512xf32>
    %233 = stablehlo.subtract %137#3, %232 : tensor<512xf32>
    %234 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<512x10xf32>
    %235 = stablehlo.multiply %arg14, %234 : tensor<512x10xf32>
    %236 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<512x10xf32>
    %237 = stablehlo.multiply %137#10, %236 : tensor<512x10xf32>
    %238 = stablehlo.add %235, %237 : tensor<512x10xf32>
    %239 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<512x10xf32>
    %240 = stablehlo.multiply %arg15, %239 : tensor<512x10xf32>
    %241 = stablehlo.multiply %137#10, %137#10 : tensor<512x10xf32>
    %242 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<512x10xf32>
    %243 = stablehlo.multiply %241, %242 : tensor<512x10xf32>
    %244 = stablehlo.add %240, %243 : tensor<512x10xf32>
    %245 = stablehlo.sqrt %244 : tensor<512x10xf32>
    %246 = stablehlo.broadcast_in_dim %171, dims = [] : (tensor<f32>) -> tensor<512x10xf32>
    %247 = stablehlo.multiply %245, %246 : tensor<512x10xf32>
    %248 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<512x10xf32>
    %249 = stablehlo.add %247, %248 : tensor<512x10xf32>
    %250 = stablehlo.broadcast_in_dim %167, dims = [] : (tensor<f32>) -> tensor<512x10xf32>
    %251 = stablehlo.multiply %238, %250 : tensor<512x10xf32>
    %252 = stablehlo.divide %251, %249 : tensor<512x10xf32>
    %253 = stablehlo.subtract %137#4, %252 : tensor<512x10xf32>
    %254 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %255 = stablehlo.multiply %arg16, %254 : tensor<10xf32>
    %256 = stablehlo.broadcast_in_dim %15, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %257 = stablehlo.multiply %137#11, %256 : tensor<10xf32>
    %258 = stablehlo.add %255, %257 : tensor<10xf32>
    %259 = stablehlo.broadcast_in_dim %17, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %260 = stablehlo.multiply %arg17, %259 : tensor<10xf32>
    %261 = stablehlo.multiply %137#11, %137#11 : tensor<10xf32>
    %262 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %263 = stablehlo.multiply %261, %262 : tensor<10xf32>
    %264 = stablehlo.add %260, %263 : tensor<10xf32>
    %265 = stablehlo.sqrt %264 : tensor<10xf32>
    %266 = stablehlo.broadcast_in_dim %171, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %267 = stablehlo.multiply %265, %266 : tensor<10xf32>
    %268 = stablehlo.broadcast_in_dim %25, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %269 = stablehlo.add %267, %268 : tensor<10xf32>
    %270 = stablehlo.broadcast_in_dim %167, dims = [] : (tensor<f32>) -> tensor<10xf32>
    %271 = stablehlo.multiply %258, %270 : tensor<10xf32>
    %272 = stablehlo.divide %271, %269 : tensor<10xf32>
    %273 = stablehlo.subtract %137#5, %272 : tensor<10xf32>
    %274 = stablehlo.add %arg18, %26 : tensor<ui32>
    %275 = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %276 = stablehlo.reshape %104 : (tensor<f32>) -> tensor<1xf32>
    %277 = stablehlo.reshape %80 : (tensor<f32>) -> tensor<1xf32>
    %278 = stablehlo.reshape %82 : (tensor<f32>) -> tensor<1xf32>
    %279 = stablehlo.is_finite %104 : (tensor<f32>) -> tensor<i1>
    %280 = stablehlo.is_finite %82 : (tensor<f32>) -> tensor<i1>
    %281 = stablehlo.and %279, %280 : tensor<i1>
    %282 = stablehlo.select %281, %275, %138 : tensor<i1>, tensor<f32>
    %283 = stablehlo.reshape %282 : (tensor<f32>) -> tensor<1xf32>
    %284 = stablehlo.is_finite %80 : (tensor<f32>) -> tensor<i1>
    %285 = stablehlo.and %284, %280 : tensor<i1>
    %286 = stablehlo.select %285, %275, %138 : tensor<i1>, tensor<f32>
    %287 = stablehlo.reshape %286 : (tensor<f32>) -> tensor<1xf32>
    %288 = stablehlo.concatenate %276, %277, %278, %278, %283, %287, dim = 0 : (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<6xf32>
    %289 = stablehlo.constant dense<[true, true, true, true, false, false]> : tensor<6xi1>
    %290 = stablehlo.add %arg23, %288 : tensor<6xf32>
    %291 = stablehlo.minimum %arg23, %288 : tensor<6xf32>
    %292 = stablehlo.select %289, %290, %291 : tensor<6xi1>, tensor<6xf32>
    return %180, %200, %220, %233, %253, %273, %157, %163, %185, %191, %205, %211, %223, %227, %238, %244, %258, %264, %274, %arg19, %292 : tensor<784x512xf32>, tensor<512xf32>, tensor<512x512xf32>, tensor<512xf32>, tensor<512x10xf32>, tensor<10xf32>, tensor<784x512xf32>, tensor<784x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512x512xf32>, tensor<512x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512x10xf32>, tensor<512x10xf32>, tensor<10xf32>, tensor<10xf32>, tensor<ui32>, tensor<2xui32>, tensor<6xf32>
  }
}
