"""What the packages that own a format read from files of it: the references of `fuzz --reference` of `halite-tests`.

usage: references.py FORMAT seeds DIR              writes valid files
       references.py FORMAT read DIR [MODEL [ADAPTERS]]

`read` takes the files of DIR that are numbers and writes, beside each, NUMBER.safetensors with the tensors that were read,
their names after `t:`, or NUMBER.refused with the reason. MODEL is the directory of the model, and ADAPTERS that of the
adapters, whose configuration the files are.

python -m pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 pillow==13.0.0 gguf==0.19.0 \
    simplejpeg==1.9.0
"""
import io, json, os, pathlib, resource, shutil, signal, struct, sys, tempfile, warnings, zlib

warnings.filterwarnings("ignore")
SECONDS = 20
TEXTS = ["I'll say  it's 3rd,\n\n na\u00efve", "", "[UNK] <s>\u00e9", "the cats sat, it is", "b c a \U0001f600"]


# Formats: what a file has, as names and (type, dimensions, bytes). A complex number is two others.

def of_numpy(array):
    import numpy as np

    names = {"b1": "BOOL", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "u1": "U8", "u2": "U16", "u4": "U32", "u8": "U64",
             "f2": "F16", "f4": "F32", "f8": "F64"}
    array = np.asarray(array)
    if array.dtype.kind == "c":
        array = array.reshape(array.shape + (1,)).view(array.real.dtype)
    kind = names[array.dtype.str[1:]]
    return kind, list(array.shape), np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()


def of_torch(tensor):
    import torch

    names = {torch.bool: "BOOL", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64", torch.uint8: "U8",
             torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.float16: "F16", torch.bfloat16: "BF16",
             torch.float32: "F32", torch.float64: "F64",
             torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    tensor = torch.view_as_real(tensor).contiguous() if tensor.is_complex() else tensor
    raw = bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
    return names[tensor.dtype], list(tensor.shape), raw


def image(data):
    import numpy as np
    import simplejpeg
    from PIL import Image, ImageOps

    opened = Image.open(io.BytesIO(data), formats=["PNG", "JPEG"])
    opened.load()
    if opened.format == "JPEG":
        # Pillow does not say that the library had to guess.
        simplejpeg.decode_jpeg(data, {"L": "GRAY"}.get(opened.mode, opened.mode), strict=True)
    if opened.mode.startswith("I;16"):
        # Pillow cuts samples off at 255; the upper 8 bits are the image.
        upper = np.asarray(ImageOps.exif_transpose(opened)) >> 8
        return {"image": of_numpy(np.repeat(upper[..., None].astype("uint8"), 3, 2))}
    return {"image": of_numpy(np.asarray(ImageOps.exif_transpose(opened).convert("RGB")))}


def safetensors(data):
    from safetensors.torch import load

    return {name: of_torch(tensor) for name, tensor in load(data).items()}


def torch_file(data):
    import torch

    found = {}

    def visit(name, value):
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided or value.is_quantized:
                raise ValueError(f"a tensor of another kind: {value.layout}")
            found[name or "tensor"] = of_torch(value)
        elif isinstance(value, dict):
            for key, one in value.items():
                visit(f"{name}.{key}" if name else str(key), one)
        elif isinstance(value, (list, tuple)):
            for key, one in enumerate(value):
                visit(f"{name}.{key}" if name else str(key), one)

    visit("", torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
    return found


def npz(data):
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: of_numpy(file[name]) for name in file.files}


def gguf(data):
    from gguf import GGMLQuantizationType as Kind, GGUFReader
    from gguf.quants import dequantize

    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(data)
        file.flush()
        reader = GGUFReader(file.name)
        found = {}
        for tensor in reader.tensors:
            dims = [int(dim) for dim in reversed(tensor.shape)]
            kind = tensor.tensor_type
            if kind == Kind.BF16:
                found[tensor.name] = ("BF16", dims, tensor.data.tobytes())
            elif kind in (Kind.F32, Kind.F16, Kind.F64, Kind.I8, Kind.I16, Kind.I32, Kind.I64):
                found[tensor.name] = (kind.name, dims, tensor.data.tobytes())
            else:
                found[tensor.name] = of_numpy(dequantize(tensor.data, kind).reshape(dims).astype("float32"))
        return found


def crc32c(data, table=[]):
    if not table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecord(data):
    found, at = {}, 0
    while at < len(data):
        head = data[at:at + 12]
        length, crc = struct.unpack("<QI", head)
        if crc32c(head[:8]) != crc:
            raise ValueError("the checksum of a length")
        payload = data[at + 12:at + 12 + length]
        (crc,) = struct.unpack("<I", data[at + 12 + length:at + 16 + length])
        if len(payload) != length or crc32c(payload) != crc:
            raise ValueError("the checksum of a payload")
        found[str(len(found))] = ("U8", [length], payload)
        at += 16 + length
    return found


def tokenizer(data):
    from tokenizers import Tokenizer

    file = Tokenizer.from_str(data.decode())
    file.no_padding()
    file.no_truncation()
    ids = {}
    for number, text in enumerate(TEXTS):
        tokens = file.encode(text, add_special_tokens=True).ids
        ids[str(number)] = ("U32", [len(tokens)], struct.pack(f"<{len(tokens)}I", *tokens))
        tokens = file.encode(text, add_special_tokens=False).ids
        plain = file.decode(tokens, skip_special_tokens=True).encode()
        ids[f"decoded {number}"] = ("U8", [len(plain)], plain)
    return ids


def configuration(data, model, adapters=None):
    """Results of a model whose configuration, or that of its adapters, is this file."""
    import make, torch

    tokens = [[(7 * place + 3 * row + 3) % 20 for place in range(7)] for row in range(2)]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        of = scratch / "of"
        shutil.copytree(adapters or model, of)
        (of / ("adapter_config.json" if adapters else "config.json")).write_bytes(data)
        base = pathlib.Path(model) if adapters else of
        # What the original says: a file that says it is of another architecture is loaded as that.
        kind = json.loads((pathlib.Path(model) / "config.json").read_text())["model_type"]
        if not adapters and json.loads(data).get("model_type") != kind:
            raise ValueError("another architecture")
        loaded = make.load_bert(base) if kind == "bert" else make.load_decoder(base)
        if adapters:
            from peft import PeftModel

            loaded = PeftModel.from_pretrained(loaded, of)
        if kind == "bert":
            values = make.run_bert(loaded, tokens, [[1] * 7] * 2)
        else:
            values = make.run_decoder(loaded, tokens)
        if not torch.isfinite(values).all():
            raise ValueError("the results are not finite")
        return {"values": of_torch(values)}


# Valid files.

def image_files(kind):
    import numpy as np
    from PIL import Image

    wave = (np.arange(23 * 17 * 3).reshape(17, 23, 3) * 7 % 256).astype("uint8")
    smooth = np.clip(np.add.outer(np.arange(17) * 9, np.arange(23) * 5)[..., None] + [0, 20, 60], 0, 255).astype("uint8")
    for pixels in (wave, smooth):
        picture = Image.fromarray(pixels)
        if kind == "png":
            for mode in ("RGB", "RGBA", "L", "LA", "P", "1", "I;16"):
                one = Image.fromarray(pixels[..., 0].astype("uint16") * 257) if mode == "I;16" else picture.convert(mode)
                yield saved(one, "PNG")
            yield saved(picture.convert("P"), "PNG", transparency=3)
            yield saved(picture.convert("L"), "PNG", transparency=9)
            exif = Image.Exif()
            exif[0x0112] = 6
            yield saved(picture, "PNG", exif=exif)
        else:
            for mode in ("RGB", "L", "CMYK"):
                for options in ({}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True}, {"optimize": True},
                                {"quality": 20, "restart_marker_blocks": 2}):
                    yield saved(picture.convert(mode), "JPEG", **options)
            exif = Image.Exif()
            exif[0x0112] = 8
            yield saved(picture, "JPEG", exif=exif)


def saved(picture, kind, **options):
    into = io.BytesIO()
    picture.save(into, kind, **options)
    return into.getvalue()


def tensors_of():
    import torch

    torch.manual_seed(1)
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
    tensors = {f"layer.{place}.weight": (torch.randn(3, 4) * 20).to(kind) for place, kind in enumerate(kinds)}
    return tensors | {"mask": torch.tensor([True, False]), "scalar": torch.tensor(3.5), "empty": torch.zeros(0, 2)}


def safetensors_files():
    from safetensors.torch import save

    yield save(tensors_of(), {"format": "pt"})
    yield save({name: tensor for name, tensor in tensors_of().items() if tensor.dim() == 2})


def torch_files():
    import torch

    base = torch.arange(24.0).reshape(4, 6)
    nested = {"model": {"w": base.t(), "part": base[1:, ::2], "row": base[2]}, "steps": [1, (torch.tensor(2), "x")], 3: torch.ones(2)}
    for value in (tensors_of(), nested, base, {"shared": base, "again": base, "view": base[1:3]}):
        for old in (False, True):
            into = io.BytesIO()
            torch.save(value, into, _use_new_zipfile_serialization=not old)
            yield into.getvalue()


def npz_files():
    import numpy as np

    kinds = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u4", "?"]
    arrays = {f"layer_{place}_weight": (np.arange(12).reshape(3, 4) * 5 % 7).astype(kind) for place, kind in enumerate(kinds)}
    arrays |= {"columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "complex": np.array([1 + 2j])}
    for save in (np.savez, np.savez_compressed):
        for chosen in (arrays, {"a": np.arange(5)}):
            into = io.BytesIO()
            save(into, **chosen)
            yield into.getvalue()


def gguf_files():
    import numpy as np
    from gguf import GGMLQuantizationType as Kind, GGUFWriter
    from gguf.constants import GGML_QUANT_SIZES
    from gguf.quants import quantize

    values = np.random.default_rng(1).normal(size=(2, 64)).astype("float32")
    with tempfile.TemporaryDirectory() as scratch:
        for number, kinds in enumerate([["F32", "F16", "BF16"], ["Q8_0", "Q4_0", "Q4_1"], ["Q4_K", "Q6_K"], ["F32"]]):
            path = pathlib.Path(scratch) / f"{number}.gguf"
            writer = GGUFWriter(path, "llama")
            writer.add_uint32("llama.block_count", 2)
            writer.add_float32("llama.rope.freq_base", 100.0)
            writer.add_bool("llama.attention.causal", True)
            writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
            for kind in kinds:
                if kind.endswith("_K"):
                    _, size = GGML_QUANT_SIZES[Kind[kind]]
                    raw = np.random.default_rng(2).integers(0, 60, size=(2, size)).astype("uint8")
                else:
                    raw = quantize(values, Kind[kind]) if kind != "F32" else values
                writer.add_tensor(f"blk.0.{kind}.weight", raw, raw_dtype=Kind[kind])
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            yield path.read_bytes()


def tfrecord_files():
    record = lambda payload: b"".join([
        struct.pack("<Q", len(payload)), struct.pack("<I", crc32c(struct.pack("<Q", len(payload)))), payload,
        struct.pack("<I", crc32c(payload))])
    yield b"".join(map(record, [b"one", b"", b"three" * 9]))
    yield record(b"x" * 300)
    yield b""


def tokenizer_files():
    """Beside those of the target."""
    import make, random

    for seed in range(4):
        yield json.dumps(make.tokenizer_json(random.Random(seed))[0]).encode()


FORMATS = {
    "png": (image, lambda: image_files("png")), "jpeg": (image, lambda: image_files("jpeg")),
    "safetensors": (safetensors, safetensors_files), "torch": (torch_file, torch_files), "npz": (npz, npz_files),
    "gguf": (gguf, gguf_files), "tfrecord": (tfrecord, tfrecord_files), "tokenizer": (tokenizer, tokenizer_files),
    "configuration": (configuration, list), "adapters": (configuration, list),
}


def write(path, tensors):
    header, at = {}, 0
    for name, (kind, dims, raw) in tensors.items():
        if kind == "BOOL" and raw.strip(b"\0\1"):
            raise ValueError("a boolean that is neither 0 nor 1")
        header["t:" + name] = {"dtype": kind, "shape": dims, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))


def late(*_):
    raise TimeoutError(f"not read in {SECONDS} seconds")


def read_one(path, read, *directories):
    signal.alarm(SECONDS)
    try:
        tensors = read(path.read_bytes(), *directories)
        signal.alarm(0)
        write(path.with_suffix(".safetensors"), tensors)
    except BaseException as error:
        signal.alarm(0)
        text = str(error).splitlines()
        path.with_suffix(".refused").write_text(f"{type(error).__name__}: {text[0][:200] if text else ''}")


def read_all(directory, read, *directories):
    """In child processes: a package may end its own."""
    paths = sorted(path for path in directory.iterdir() if path.name.isdigit())
    while paths:
        child = os.fork()
        if child == 0:
            for path in paths:
                read_one(path, read, *directories)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        paths = [path for path in paths if not any(path.with_suffix(end).exists() for end in (".safetensors", ".refused"))]
        if status == 0 or not paths:
            break
        paths[0].with_suffix(".refused").write_text(f"the process ended with status {status}")
        del paths[0]


def main():
    name, action, directory, *directories = sys.argv[1:]
    directory = pathlib.Path(directory)
    read, files = FORMATS[name]
    if action == "seeds":
        for number, data in enumerate(files()):
            (directory / f"{number:03}").write_bytes(data)
        return
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    signal.signal(signal.SIGALRM, late)
    if name in ("configuration", "adapters"):
        import make, peft  # once for all children
    if name in ("torch", "safetensors"):
        import torch
    read_all(directory, read, *directories)


if __name__ == "__main__":
    main()
