//! halite's convolution kernels as functions of the process, which programs call: the targets of
//! [`Capabilities::kernels`](halite_core::Capabilities::kernels).

use std::{
    collections::HashMap,
    num::NonZero,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    thread,
};

use halite_core::{
    Error, ErrorKind, Result,
    custom_call::{self, Arguments, Attributes},
    warning,
};
use halite_kernels::{ConvDim, ConvGeometry, Convolution, Threads};

const OP: &str = "convolution";

/// Most convolutions whose positions are cached.
const MOST_CACHED: usize = 512;

/// A kernel of convolutions, as a function of two operands.
struct Kernel {
    target: &'static str,
    run: fn(&Convolution, &Threads, &[f32], &[f32], &mut [f32]),
    /// The tensors that the operands and the result are.
    tensors: [Tensor; 3],
}

/// A tensor of the convolution of a forward pass, or its gradient.
#[derive(Clone, Copy)]
enum Tensor {
    Input,
    Kernel,
    Output,
}

const KERNELS: [Kernel; 3] = [
    Kernel {
        target: "halite_convolution",
        run: Convolution::forward,
        tensors: [Tensor::Input, Tensor::Kernel, Tensor::Output],
    },
    Kernel {
        target: "halite_convolution_input_gradient",
        run: Convolution::input_gradient,
        tensors: [Tensor::Kernel, Tensor::Output, Tensor::Input],
    },
    Kernel {
        target: "halite_convolution_kernel_gradient",
        run: Convolution::kernel_gradient,
        tensors: [Tensor::Input, Tensor::Output, Tensor::Kernel],
    },
];

/// Registers the kernels, once in a process. Returns false, after a warning, if that failed.
pub(crate) fn register() -> bool {
    static REGISTERED: LazyLock<bool> = LazyLock::new(|| {
        let registered = (KERNELS.into_iter()).try_for_each(|kernel| {
            custom_call::register(kernel.target, move |call| kernel.call(call))
        });
        registered.is_ok_and_warned()
    });
    *REGISTERED
}

impl Kernel {
    /// Runs one call.
    fn call(&self, call: &mut Arguments<'_>) -> Result<()> {
        let geometry = geometry(call.attributes())?;
        let ([left, right], [out]) = call.buffers()?;
        let (left, right) = (left.as_slice::<f32>()?, right.as_slice::<f32>()?);
        let out = out.as_mut_slice::<f32>()?;
        for (tensor, found) in self.tensors.into_iter().zip([left.len(), right.len(), out.len()]) {
            tensor.check(&geometry, found)?;
        }
        let threads = THREADS.as_ref().map_err(Clone::clone)?;
        (self.run)(&cached(geometry), threads, left, right, out);
        Ok(())
    }
}
