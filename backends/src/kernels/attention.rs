//! Attention and its gradient.

use std::sync::Arc;

use halite_core::{
    Error, Result, TensorType,
    custom_call::{Arguments, InputBuffer, OutputBuffer},
};
use halite_kernels::{Attention, AttentionBackward, AttentionGeometry};

use super::{Prepared, threads};

const OP: &str = "attention";

/// Computes the result and the logarithms of the sums of exponentials.
pub(super) fn forward(call: &mut Arguments<'_>) -> Result<()> {
    let causal = call.attributes().bool("causal")?;
    let ([q, k, v], [out, log_sums]) = call.buffers()?;
    let attention = prepared([q, k, v], causal)?;
    let [q, k, v] = [floats(q)?, floats(k)?, floats(v)?];
    let (out, log_sums) = (out.as_mut_slice()?, log_sums.as_mut_slice()?);
    let geometry = attention.geometry();
    check(
        geometry,
        &[out.len(), log_sums.len()],
        &[geometry.out_len(), geometry.log_sums_len()],
    )?;
    attention.forward(threads()?, q, k, v, out, log_sums);
    Ok(())
}

/// Computes the gradients of the queries, keys and values.
pub(super) fn backward(call: &mut Arguments<'_>) -> Result<()> {
    let causal = call.attributes().bool("causal")?;
    let ([q, k, v, log_sums, g, row_sums], [dq, dk, dv]) = call.buffers()?;
    let attention = prepared([q, k, v], causal)?;
    let operands = AttentionBackward {
        q: floats(q)?,
        k: floats(k)?,
        v: floats(v)?,
        log_sums: floats(log_sums)?,
        g: floats(g)?,
        row_sums: floats(row_sums)?,
    };
    let [dq, dk, dv] = [results(dq)?, results(dk)?, results(dv)?];
    let geometry = attention.geometry();
    let found = [
        operands.log_sums.len(),
        operands.g.len(),
        operands.row_sums.len(),
        dq.len(),
        dk.len(),
        dv.len(),
    ];
    let [sums, out] = [geometry.log_sums_len(), geometry.out_len()];
    check(
        geometry,
        &found,
        &[
            sums,
            out,
            sums,
            geometry.q_len(),
            geometry.k_len(),
            geometry.v_len(),
        ],
    )?;
    attention.backward(threads()?, operands, dq, dk, dv);
    Ok(())
}

fn floats<'b>(buffer: &'b InputBuffer<'_>) -> Result<&'b [f32]> {
    buffer.as_slice()
}

fn results<'b>(buffer: &'b mut OutputBuffer<'_>) -> Result<&'b mut [f32]> {
    buffer.as_mut_slice()
}

/// Attention of queries `[batch, time, heads, width]`, keys `[batch, source, kv_heads, width]` and
/// values `[batch, source, kv_heads, any]`.
fn prepared(operands: [&InputBuffer<'_>; 3], causal: bool) -> Result<Arc<Attention>> {
    static PREPARED: Prepared<AttentionGeometry, Attention> = Prepared::new();
    let [q, k, v] = operands.map(InputBuffer::ty);
    let fits = || -> Option<AttentionGeometry> {
        let dims = |ty: &TensorType| <[usize; 4]>::try_from(ty.dims()).ok();
        let ([batch, time, heads, width], k, v) = (dims(q)?, dims(k)?, dims(v)?);
        let [_, source, kv_heads, value_width] = v;
        (k == [batch, source, kv_heads, width] && v[0] == batch).then_some(AttentionGeometry {
            batch,
            time,
            source,
            heads,
            kv_heads,
            width,
            value_width,
            causal,
        })
    };
    let geometry = fits().ok_or_else(|| {
        let message = format!(
            "queries {q}, keys {k}, values {v}; expected [batch, time, heads, width], \
             [batch, source, kv heads, width] and [batch, source, kv heads, any]"
        );
        Error::invalid(OP, message)
    })?;
    PREPARED.get(geometry, |geometry| {
        Attention::new(geometry).map_err(|error| Error::invalid(OP, error.to_string()))
    })
}

/// Checks the numbers of elements of the buffers that the geometry is not made from.
fn check(geometry: &AttentionGeometry, found: &[usize], needed: &[usize]) -> Result<()> {
    if found == needed {
        return Ok(());
    }
    let message =
        format!("the other buffers have {found:?} elements, {geometry:?} needs {needed:?}");
    Err(Error::invalid(OP, message))
}
