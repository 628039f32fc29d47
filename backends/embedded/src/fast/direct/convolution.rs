//! Convolutions in groups and of dilated inputs, in the layout of [`halite_kernels::Convolution`].

use halite_core::Result;
use halite_kernels::Convolution;

use super::{Call, Direct};

/// What a convolution of a program computes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in super::super) enum Pass {
    /// The result, of the input and the kernel.
    Forward,
    /// The gradient of the kernel, of the input and the gradient of the result.
    KernelGradient,
}

/// A convolution of elements of `f32`.
#[derive(Debug)]
pub(in super::super) struct Convolve {
    pub(in super::super) convolution: Convolution,
    pub(in super::super) pass: Pass,
}

impl Direct for Convolve {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let x: &[f32] = call.values.elements(call.operands[0])?;
        let y: &[f32] = call.values.elements(call.operands[1])?;
        let out: &mut [f32] = bytemuck::cast_slice_mut(result.bytes_mut());
        match self.pass {
            Pass::Forward => self.convolution.forward(call.threads, x, y, out),
            Pass::KernelGradient => self.convolution.kernel_gradient(call.threads, x, y, out),
        }
        call.set(0, result);
        Ok(())
    }
}
