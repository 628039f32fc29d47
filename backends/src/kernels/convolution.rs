//! Convolutions and their gradients.

use half::bf16;
use halite_core::{
    DType, Element, Error, Result,
    custom_call::{Arguments, Attributes, InputBuffer, OutputBuffer},
};
use halite_kernels::{ConvDim, ConvGeometry, Convolution, Threads};

use super::{Prepared, threads};

const OP: &str = "convolution";

/// A function of two tensors, which computes a third.
type Run<T, O> = fn(&Convolution, &Threads, &[T], &[T], &mut [O]);

/// A kernel of convolutions, by the types of the elements of its operands and its result.
pub(super) struct Kernel {
    pub(super) target: &'static str,
    f32: Run<f32, f32>,
    bf16: Run<bf16, bf16>,
    bf16_to_f32: Run<bf16, f32>,
    /// Numbers of elements of the operands and the result.
    lengths: fn(&ConvGeometry) -> [usize; 3],
}

pub(super) const KERNELS: [Kernel; 3] = [
    Kernel {
        target: "halite_convolution",
        f32: Convolution::forward,
        bf16: Convolution::forward,
        bf16_to_f32: Convolution::forward,
        lengths: |of| [of.input_len(), of.kernel_len(), of.output_len()],
    },
    Kernel {
        target: "halite_convolution_input_gradient",
        f32: Convolution::input_gradient,
        bf16: Convolution::input_gradient,
        bf16_to_f32: Convolution::input_gradient,
        lengths: |of| [of.kernel_len(), of.output_len(), of.input_len()],
    },
    Kernel {
        target: "halite_convolution_kernel_gradient",
        f32: Convolution::kernel_gradient,
        bf16: Convolution::kernel_gradient,
        bf16_to_f32: Convolution::kernel_gradient,
        lengths: |of| [of.input_len(), of.output_len(), of.kernel_len()],
    },
];

impl Kernel {
    /// Computes the result of a call.
    pub(super) fn call(&self, call: &mut Arguments<'_>) -> Result<()> {
        static PREPARED: Prepared<ConvGeometry, Convolution> = Prepared::new();
        let convolution = PREPARED.get(geometry(call.attributes())?, |geometry| {
            Convolution::new(geometry).map_err(|error| Error::invalid(OP, error.to_string()))
        })?;
        let ([left, right], [out]) = call.buffers()?;
        let operands = [left, right];
        match [left.ty().dtype(), out.ty().dtype()] {
            [DType::Bf16, DType::Bf16] => self.run(self.bf16, &convolution, operands, out),
            [DType::Bf16, _] => self.run(self.bf16_to_f32, &convolution, operands, out),
            _ => self.run(self.f32, &convolution, operands, out),
        }
    }

    fn run<T, O>(
        &self,
        run: Run<T, O>,
        convolution: &Convolution,
        operands: [&InputBuffer<'_>; 2],
        out: &mut OutputBuffer<'_>,
    ) -> Result<()>
    where
        T: Element + halite_kernels::Element,
        O: Element + halite_kernels::Element,
    {
        let [left, right] = operands;
        let (left, right) = (left.as_slice::<T>()?, right.as_slice::<T>()?);
        let out = out.as_mut_slice::<O>()?;
        let needed = (self.lengths)(convolution.geometry());
        let found = [left.len(), right.len(), out.len()];
        if found != needed {
            let message = format!(
                "operands and result have {found:?} elements, {:?} needs {needed:?}",
                convolution.geometry()
            );
            return Err(Error::invalid(OP, message));
        }
        run(convolution, threads()?, left, right, out);
        Ok(())
    }
}

/// The convolution that the attributes of a call describe.
fn geometry(attributes: Attributes<'_>) -> Result<ConvGeometry> {
    let padding = |name: String| {
        let value = attributes.int(&name)?;
        isize::try_from(value).map_err(|_| out_of_range(&name, value))
    };
    let size = |name: &str| {
        let value = attributes.int(name)?;
        usize::try_from(value).map_err(|_| out_of_range(name, value))
    };
    let dim = |index: usize| {
        Ok(ConvDim {
            input: size(&format!("input{index}"))?,
            kernel: size(&format!("kernel{index}"))?,
            input_dilation: match attributes.get(&format!("input_dilation{index}")) {
                Some(_) => size(&format!("input_dilation{index}"))?,
                None => 1,
            },
            stride: size(&format!("stride{index}"))?,
            dilation: size(&format!("dilation{index}"))?,
            low: padding(format!("low{index}"))?,
            high: padding(format!("high{index}"))?,
        })
    };
    let count = (0..)
        .take_while(|index| attributes.get(&format!("input{index}")).is_some())
        .count();
    Ok(ConvGeometry {
        batch: size("batch")?,
        features: size("features")?,
        outputs: size("outputs")?,
        groups: size("groups")?,
        spatial: (0..count).map(dim).collect::<Result<_>>()?,
    })
}

fn out_of_range(name: &str, value: i64) -> Error {
    Error::invalid(
        OP,
        format!("the attribute `{name}` is {value}, out of range"),
    )
}
