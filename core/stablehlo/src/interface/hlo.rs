//! Shardings as GSPMD writes them: `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`.

use halite_core::HloSharding;

use super::{Check, Fault};

/// The sharding that `text` gives for a tensor of rank `rank`; `None` if it leaves it open.
pub(super) fn parse(text: &str, rank: usize, partitions: usize) -> Check<Option<HloSharding>> {
    let whole = HloSharding {
        parts: vec![1; rank],
        of_device: vec![0; partitions].into(),
    };
    let body = text
        .trim()
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let body = body.map(|body| body.split(" metadata=").next().unwrap_or(body));
    match body.map(str::trim) {
        Some("replicated") => Ok(Some(whole)),
        Some("unknown") => Ok(None),
        // One device has the whole tensor.
        Some("maximal device=0") if partitions == 1 => Ok(Some(whole)),
        Some(body) if body == "manual" || body.starts_with("maximal") || body.starts_with('{') => {
            Err(Fault::unsupported(format!(
                "`mhlo.sharding` is `{text}`; inputs and outputs must be split over all partitions"
            )))
        }
        body => (body.and_then(|body| tiled(body, rank, partitions)))
            .map(Some)
            .ok_or_else(|| {
                Fault::invalid(format!(
                    "`mhlo.sharding` is `{text}`; it must be such as `{{devices=[2,1]<=[2]}}`, \
                     for {rank} dimensions and {partitions} partitions"
                ))
            }),
    }
}

/// `devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate`
fn tiled(body: &str, rank: usize, partitions: usize) -> Option<HloSharding> {
    let (body, copies) = match body.strip_suffix("last_tile_dim_replicate") {
        Some(body) => (body.trim_end(), 1),
        None => match body.split_once("last_tile_dims={") {
            Some((body, kinds)) => {
                let mut kinds = kinds.strip_suffix('}')?.split(',').map(str::trim);
                let copies = kinds.clone().count();
                // The other kinds are manual, maximal and unknown.
                (
                    body.trim_end(),
                    kinds.all(|kind| kind == "replicated").then_some(copies)?,
                )
            }
            None => (body, 0),
        },
    };
    let (dims, devices) = body.strip_prefix("devices=[")?.split_once(']')?;
    let dims = numbers(dims)?;
    let devices = match devices.strip_prefix("<=[") {
        None => numbers(devices)?,
        Some(iota) => {
            let (reshape, transpose) = iota.split_once(']')?;
            let reshape = numbers(reshape)?;
            let permutation = match transpose {
                "" => (0..reshape.len()).collect(),
                _ => numbers(transpose.strip_prefix("T(")?.strip_suffix(')')?)?,
            };
            HloSharding::iota_devices(partitions, &reshape, &permutation)?
        }
    };
    let fits = devices.len() == partitions && dims.len() == rank + copies;
    if fits {
        HloSharding::from_tiles(rank, &dims, &devices)
    } else {
        None
    }
}

fn numbers(text: &str) -> Option<Vec<usize>> {
    let numbers = text.split(',').map(|number| number.trim().parse().ok());
    numbers.collect()
}
