module @jit_control attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<i32>, %arg1: tensor<3xf32>) -> (tensor<i32> {jax.result_info = "result[0]"}, tensor<3xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.convert %arg0 : tensor<i32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.clamp %c, %0, %c_0 : tensor<i32>
    %2 = "stablehlo.case"(%1) ({
      %4 = stablehlo.sine %arg1 : tensor<3xf32>
      stablehlo.return %4 : tensor<3xf32>
    }, {
      %4 = stablehlo.convert %arg0 : (tensor<i32>) -> tensor<f32>
      %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<3xf32>
      %6 = stablehlo.multiply %arg1, %5 : tensor<3xf32>
      stablehlo.return %6 : tensor<3xf32>
    }) : (tensor<i32>) -> tensor<3xf32>
    %3:3 = stablehlo.while(%iterArg = %2, %iterArg_1 = %arg0, %iterArg_2 = %2) : tensor<3xf32>, tensor<i32>, tensor<3xf32>
    cond {
      %c_3 = stablehlo.constant dense<10> : tensor<i32>
      %4 = stablehlo.compare LT, %iterArg_1, %c_3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<1> : tensor<i32>
      %4 = stablehlo.add %iterArg_1, %c_3 : tensor<i32>
      %5 = stablehlo.multiply %iterArg_2, %iterArg : tensor<3xf32>
      stablehlo.return %iterArg, %4, %5 : tensor<3xf32>, tensor<i32>, tensor<3xf32>
    }
    return %3#1, %3#2 : tensor<i32>, tensor<3xf32>
  }
}
