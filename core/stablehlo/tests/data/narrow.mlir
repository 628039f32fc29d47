module @jit_narrow attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<6xf32>) -> (tensor<6xi4> {jax.result_info = "result[0]"}, tensor<6xui2> {jax.result_info = "result[1]"}, tensor<6xf8E5M2> {jax.result_info = "result[2]"}, tensor<6xbf16> {jax.result_info = "result[3]"}, tensor<6xi1> {jax.result_info = "result[4]"}, tensor<6xf8E4M3FN> {jax.result_info = "result[5]"}, tensor<6xf8E8M0FNU> {jax.result_info = "result[6]"}, tensor<6xf4E2M1FN> {jax.result_info = "result[7]"}, tensor<6xf16> {jax.result_info = "result[8]"}, tensor<6xf8E3M4> {jax.result_info = "result[9]"}, tensor<4xi4> {jax.result_info = "result[10]"}, tensor<3xi1> {jax.result_info = "result[11]"}, tensor<2xcomplex<f32>> {jax.result_info = "result[12]"}, tensor<5xf32> {jax.result_info = "result[13]"}, tensor<120xi32> {jax.result_info = "result[14]"}, tensor<120xi1> {jax.result_info = "result[15]"}) {
    %cst = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, -5.000000e-01, 4.480000e+02, 0x7F, 3.906250e-03]> : tensor<6xf8E4M3FN>
    %cst_0 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, 0xFF, 5.120000e+02, 1.073740e+09, 3.906250e-03]> : tensor<6xf8E8M0FNU>
    %cst_1 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, -5.000000e-01, 6.000000e+00, 6.000000e+00, 0.000000e+00]> : tensor<6xf4E2M1FN>
    %cst_2 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, -5.000000e-01, 4.480000e+02, 0x7C00, 3.000260e-03]> : tensor<6xf16>
    %cst_3 = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, -5.000000e-01, 0x70, 0x70, 0.000000e+00]> : tensor<6xf8E3M4>
    %c = stablehlo.constant dense<[1, 2, -3, 7]> : tensor<4xi4>
    %c_4 = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
    %cst_5 = stablehlo.constant dense<[(1.000000e+00,2.000000e+00), (3.000000e+00,-4.000000e+00)]> : tensor<2xcomplex<f32>>
    %cst_6 = stablehlo.constant dense<[0x7F800000, 0x7FC00000, -0.000000e+00, 1.401300e-45, 1.100000e+00]> : tensor<5xf32>
    %c_7 = stablehlo.constant dense<"0x00000000010000000400000009000000100000001900000024000000310000004000000051000000640000007900000090000000A9000000C4000000E10000000001000021010000440100006901000090010000B9010000E4010000110200004002000071020000A4020000D9020000100300004903000084030000C1030000000400004104000084040000C90400001005000059050000A4050000F10500004006000091060000E40600003907000090070000E907000044080000A10800000009000061090000C4090000290A0000900A0000F90A0000640B0000D10B0000400C0000B10C0000240D0000990D0000100E0000890E0000040F0000810F000000100000811000000411000089110000101200009912000024130000B113000040140000D114000064150000F91500009016000029170000C41700006118000000190000A1190000441A0000E91A0000901B0000391C0000E41C0000911D0000401E0000F11E0000A41F00005920000010210000C9210000842200004123000000240000C1240000842500004926000010270000D9270000A428000071290000402A0000112B0000E42B0000B92C0000902D0000692E0000442F00002130000000310000E1310000C4320000A933000090340000793500006436000051370000"> : tensor<120xi32>
    %c_8 = stablehlo.constant dense<"0x010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000010000"> : tensor<120xi1>
    %0 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xi4>
    %1 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xui2>
    %2 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xf8E5M2>
    %3 = stablehlo.convert %arg0 : (tensor<6xf32>) -> tensor<6xbf16>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %5 = stablehlo.compare NE, %arg0, %4, FLOAT : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
    %6 = stablehlo.convert %5 : tensor<6xi1>
    return %0, %1, %2, %3, %6, %cst, %cst_0, %cst_1, %cst_2, %cst_3, %c, %c_4, %cst_5, %cst_6, %c_7, %c_8 : tensor<6xi4>, tensor<6xui2>, tensor<6xf8E5M2>, tensor<6xbf16>, tensor<6xi1>, tensor<6xf8E4M3FN>, tensor<6xf8E8M0FNU>, tensor<6xf4E2M1FN>, tensor<6xf16>, tensor<6xf8E3M4>, tensor<4xi4>, tensor<3xi1>, tensor<2xcomplex<f32>>, tensor<5xf32>, tensor<120xi32>, tensor<120xi1>
  }
}
