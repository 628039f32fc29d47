module @jit_narrow attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<6xf32>) -> (tensor<6xi4> {jax.result_info = "result[0]"}, tensor<6xui2> {jax.result_info = "result[1]"}, tensor<6xf8E5M2> {jax.result_info = "result[2]"}, tensor<6xbf16> {jax.result_info = "result[3]"}, tensor<6xi1> {jax.result_info = "result[4]"}, tensor<6xf8E4M3FN> {jax.result_info = "result[5]"}, tensor<6xf8E8M0FNU> {jax.result_info = "result[6]"}, tensor<6xf4E2M1FN> {jax.result_info = "result[7]"}, tensor<6xf16> {jax.result_info = "result[8]"}, tensor<6xf8E3M4> {jax.result_info = "result[9]"}, tensor<4xi4> {jax.result_info = "result[10]"}, tensor<3xi1> {jax.result_info = "result[11]"}, tensor<2xcomplex<f32>> {jax.result_info = "result[12]"}, tensor<5xf32> {jax.result_info = "result[13]"}, tensor<120xui8> {jax.result_info = "result[14]"}, tensor<120xi1> {jax.result_info = "result[15]"}) {
    %cst = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, -5.000000e-01, 4.480000e+02, 0x7F, 3.906250e-03]> : tensor<6xf8E4M3FN>
    %cst_0 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, 0xFF, 5.120000e+02, 1.073740e+09, 3.906250e-03]> : tensor<6xf8E8M0FNU>
    %cst_1 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, -5.000000e-01, 6.000000e+00, 6.000000e+00, 0.000000e+00]> : tensor<6xf4E2M1FN>
    %cst_2 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, -5.000000e-01, 4.480000e+02, 0x7C00, 3.000260e-03]> : tensor<6xf16>
    %cst_3 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, -5.000000e-01, 0x70, 0x70, 0.000000e+00]> : tensor<6xf8E3M4>
    %c = stablehlo.constant dense<[1, 2, -3, 7]> : tensor<4xi4>
    %c_4 = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
    %cst_5 = stablehlo.constant dense<[(1.000000e+00,2.000000e+00), (3.000000e+00,-4.000000e+00)]> : tensor<2xcomplex<f32>>
    %cst_6 = stablehlo.constant dense<[0x7F800000, 0x7FC00000, -0.000000e+00, 1.401300e-45, 1.100000e+00]> : tensor<5xf32>
    %c_7 = stablehlo.constant dense<"0x000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F404142434445464748494A4B4C4D4E4F505152535455565758595A5B5C5D5E5F606162636465666768696A6B6C6D6E6F7071727374757677"> : tensor<120xui8>
    %c_8 = stablehlo.constant dense<"0x010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000"> : tensor<120xi1>
    %0 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xi4>
    %1 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xui2>
    %2 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xf8E5M2>
    %3 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xbf16>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %5 = stablehlo.compare NE, %arg0, %4, FLOAT : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
    %6 = stablehlo.convert %5 : tensor<6xi1>
    return %0, %1, %2, %3, %6, %cst, %cst_0, %cst_1, %cst_2, %cst_3, %c, %c_4, %cst_5, %cst_6, %c_7, %c_8 : tensor<6xi4>, tensor<6xui2>, tensor<6xf8E5M2>, tensor<6xbf16>, tensor<6xi1>, tensor<6xf8E4M3FN>, tensor<6xf8E8M0FNU>, tensor<6xf4E2M1FN>, tensor<6xf16>, tensor<6xf8E3M4>, tensor<4xi4>, tensor<3xi1>, tensor<2xcomplex<f32>>, tensor<5xf32>, tensor<120xui8>, tensor<120xi1>
  }
}
