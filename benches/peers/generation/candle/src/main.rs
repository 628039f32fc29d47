//! candle: `candle-generation MODEL [f32|bf16]`, a directory of Hugging Face with one
//! `model.safetensors`; see compare.py for the work.

use std::{
    io::{self, BufRead},
    path::Path,
    time::Instant,
};

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let directory = Path::new(&arguments[1]);
    let dtype = match arguments.get(2).map(String::as_str) {
        Some("bf16") => DType::BF16,
        _ => DType::F32,
    };
    let text = std::fs::read(directory.join("config.json"))?;
    let config: LlamaConfig = serde_json::from_slice(&text).map_err(candle_core::Error::wrap)?;
    let config = config.into_config(false);
    let weights = std::fs::read(directory.join("model.safetensors"))?;
    let weights = VarBuilder::from_buffered_safetensors(weights, dtype, &Device::Cpu)?;
    let model = Llama::load(weights, &config)?;
    once(&model, &config, dtype)?;
    for _ in io::stdin().lock().lines() {
        once(&model, &config, dtype)?;
    }
    Ok(())
}

fn once(model: &Llama, config: &Config, dtype: DType) -> Result<()> {
    let device = Device::Cpu;
    let prompt: Vec<u32> = (0..512)
        .map(|place| (place * 7919 % config.vocab_size) as u32)
        .collect();
    let mut cache = Cache::new(true, dtype, config, &device)?;
    let mut next = |tokens: &[u32], position: usize| -> Result<u32> {
        let tokens = Tensor::new(tokens, &device)?.unsqueeze(0)?;
        let logits = model.forward(&tokens, position, &mut cache)?;
        logits.argmax(D::Minus1)?.flatten_all()?.get(0)?.to_scalar()
    };
    let start = Instant::now();
    let mut token = next(&prompt, 0)?;
    let prefill = start.elapsed().as_secs_f64();
    let start = Instant::now();
    for step in 0..64 {
        token = next(&[token], prompt.len() + step)?;
    }
    let decode = start.elapsed().as_secs_f64();
    println!(r#"{{"prefill": {prefill}, "decode": {decode}, "last": {token}}}"#);
    Ok(())
}
