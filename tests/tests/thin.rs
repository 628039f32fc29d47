use halite_core::{
    tree::{Empty, Leaf, Tree},
    *,
};
use halite_nn::*;
use std::sync::Arc;

#[derive(Tree)]
struct Dense<L> {
    w: L,
    b: L,
}

#[test]
fn thin() {
    let plugin = halite_pjrt::Plugin::load(std::env::var("HALITE_CPU_PLUGIN").unwrap()).unwrap();
    for devices in [1usize, 8] {
        let client = Client::new(plugin.client(vec![("cpu_device_count".into(), 8i64.into())]).unwrap());
        let mesh = Arc::new(if devices == 1 {
            Mesh::single(client.local_devices()[0])
        } else {
            Mesh::new([("data", 8)], client.local_devices()).unwrap()
        });
        let whole = Sharding::replicated(&mesh);
        let rows = if devices == 1 { whole.clone() } else { Sharding::new(&mesh, PartitionSpec::first("data")).unwrap() };
        let step = Jit::<Dense<()>, Leaf<()>, Leaf<()>>::new(&client, |_cx, model, Leaf(x)| {
            let y = (x.matmul(model.w) + model.b).relu();
            (Dense { w: model.w * 0.5, b: model.b + 1.0 }, Leaf(y.sum_all()))
        });
        let mut model = Dense {
            w: Array::upload(&client, &HostArray::from_slice(&[0.5f32; 32 * 32], [32, 32]).unwrap(), &whole).unwrap(),
            b: Array::upload(&client, &HostArray::from_slice(&[0.25f32; 32], [32]).unwrap(), &whole).unwrap(),
        };
        let x = Leaf(Array::upload(&client, &HostArray::from_slice(&[1f32; 8 * 32], [8, 32]).unwrap(), &rows).unwrap());
        let out;
        (model, out) = step.call(model, &x).unwrap();
        println!("{} {:?}", out.0.read().unwrap().item::<f32>().unwrap(), step);
        let n = 2000;
        let t = std::time::Instant::now();
        let mut last = None;
        for _ in 0..n {
            let o;
            (model, o) = step.call(model, &x).unwrap();
            last = Some(o);
        }
        last.unwrap().0.wait().unwrap();
        println!("{devices} devices: {:?} per step", t.elapsed() / n);
        drop(model);
    }
}
