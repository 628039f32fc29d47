//! The machine that reads a pickle: a stack, marks and a memo, and one step for each opcode.

use std::{
    collections::{BTreeSet, HashMap},
    io::{BufRead, Read},
};

use halite_core::{Error, ErrorKind, Result};

use super::{Id, LONGEST_NAME, MOST_ELEMENTS, MOST_VALUES, Value, corrupt};

pub(super) struct Machine<'a, R> {
    pub(super) input: &'a mut R,
    pub(super) values: Vec<Value>,
    pub(super) stack: Vec<Id>,
    /// Lengths of the stack at the marks.
    pub(super) marks: Vec<usize>,
    pub(super) memo: HashMap<u32, Id>,
    pub(super) refused: BTreeSet<String>,
    /// Elements that lists, tuples and dicts were given.
    pub(super) elements: usize,
}

impl<R: BufRead> Machine<'_, R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let read = self.input.read_exact(&mut bytes);
        read.map_err(|error| corrupt("the pickle is truncated").caused_by(error))?;
        Ok(bytes)
    }

    fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(len).read_to_end(&mut bytes);
        match read {
            Ok(read) if read as u64 == len => Ok(bytes),
            Ok(read) => Err(corrupt(format!(
                "the pickle is truncated: {read} of {len} bytes"
            ))),
            Err(error) => Err(corrupt("the pickle cannot be read").caused_by(error)),
        }
    }

    fn text(&mut self, len: u64) -> Result<String> {
        String::from_utf8(self.bytes(len)?).map_err(|_| corrupt("a text is not UTF-8"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        let read = self
            .input
            .by_ref()
            .take(LONGEST_NAME as u64 + 1)
            .read_until(b'\n', &mut line);
        read.map_err(|error| corrupt("the pickle cannot be read").caused_by(error))?;
        match line.pop() {
            Some(b'\n') => String::from_utf8(line).map_err(|_| corrupt("a name is not UTF-8")),
            _ => Err(corrupt(format!(
                "a name is truncated or longer than {LONGEST_NAME} bytes"
            ))),
        }
    }

    fn add(&mut self, value: Value) -> Result<Id> {
        if self.values.len() >= MOST_VALUES {
            return Err(corrupt(format!(
                "the pickle has more than {MOST_VALUES} values"
            )));
        }
        self.values.push(value);
        Ok((self.values.len() - 1) as Id)
    }

    pub(super) fn push(&mut self, value: Value) -> Result<()> {
        let id = self.add(value)?;
        self.stack.push(id);
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(corrupt("the pickle takes more values than it has"));
        }
        Ok(self.stack.pop().expect("it is longer than the mark"))
    }

    pub(super) fn top(&self) -> Result<Id> {
        self.stack
            .last()
            .copied()
            .ok_or_else(|| corrupt("the pickle takes a value of none"))
    }

    /// Takes the values from the last mark on.
    fn since_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self
            .marks
            .pop()
            .ok_or_else(|| corrupt("the pickle has no mark"))?;
        self.count(self.stack.len() - mark)?;
        Ok(self.stack.split_off(mark))
    }

    /// Counts elements: a value could be an element of a billion lists.
    pub(super) fn count(&mut self, elements: usize) -> Result<()> {
        self.elements += elements;
        self.check(self.elements)
    }

    fn check(&self, elements: usize) -> Result<()> {
        if elements > MOST_ELEMENTS {
            let message = format!("the pickle has more than {MOST_ELEMENTS} elements");
            return Err(corrupt(message));
        }
        Ok(())
    }

    fn tuple(&mut self, len: usize) -> Result<()> {
        let mut elements = (0..len).map(|_| self.pop()).collect::<Result<Vec<_>>>()?;
        elements.reverse();
        self.push(Value::Tuple(elements))
    }

    fn put(&mut self, at: u32) -> Result<()> {
        let top = self.top()?;
        self.memo.insert(at, top);
        Ok(())
    }

    pub(super) fn take(&mut self, at: u32) -> Result<()> {
        let known = self.memo.get(&at).copied();
        self.stack
            .push(known.ok_or_else(|| corrupt(format!("no value {at} in the memo")))?);
        Ok(())
    }

    /// Executes one opcode; false after the last.
    pub(super) fn step(&mut self) -> Result<bool> {
        let [opcode] = self.array()?;
        match opcode {
            b'.' => return Ok(false),
            0x80 => drop(self.array::<1>()?), // PROTO
            0x95 => drop(self.array::<8>()?), // FRAME
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => self.stack.push(self.top()?),
            b'q' => {
                let [at] = self.array()?;
                self.put(at.into())?;
            }
            b'r' => {
                let at = u32::from_le_bytes(self.array()?);
                self.put(at)?;
            }
            0x94 => self.put(self.memo.len() as u32)?, // MEMOIZE
            b'h' => {
                let [at] = self.array()?;
                self.take(at.into())?;
            }
            b'j' => {
                let at = u32::from_le_bytes(self.array()?);
                self.take(at)?;
            }
            _ => self.construct(opcode)?,
        }
        self.check(self.stack.len() + self.marks.len() + self.memo.len())?;
        Ok(true)
    }

    /// Opcodes that make values of those on the stack.
    fn construct(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            b')' => self.push(Value::Tuple(Vec::new())),
            0x85..=0x87 => self.tuple((opcode - 0x84).into()),
            b't' => {
                let elements = self.since_mark()?;
                self.push(Value::Tuple(elements))
            }
            b']' | 0x8f => self.push(Value::List(Vec::new())), // a set is a list
            b'l' => {
                let elements = self.since_mark()?;
                self.push(Value::List(elements))
            }
            b'a' => {
                let element = self.pop()?;
                self.count(1)?;
                self.extend(vec![element])
            }
            b'e' | 0x90 => {
                let elements = self.since_mark()?;
                self.extend(elements)
            }
            b'}' => self.push(Value::Dict(Vec::new())),
            b'd' => {
                let items = self.since_mark()?;
                self.push(Value::Dict(Vec::new()))?;
                self.set_items(items)
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.count(2)?;
                self.set_items(vec![key, value])
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set_items(items)
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Text(module), Value::Text(name)) =
                    (self.value(module), self.value(name))
                else {
                    return Err(corrupt("the name of a global is not text"));
                };
                if module.len().max(name.len()) > LONGEST_NAME {
                    let len = module.len().max(name.len());
                    return Err(corrupt(format!("the name of a global has {len} bytes")));
                }
                let (module, name) = (module.clone(), name.clone());
                self.global(&module, &name)
            }
            b'Q' => self.persistent(),
            b'R' | 0x81 => self.reduce(),
            b'b' => self.build(),
            _ => self.constant(opcode),
        }
    }

    /// Opcodes that make a value of the bytes behind them.
    fn constant(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()))
            }
            b'K' => {
                let value = u8::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()))
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(value.into()))
            }
            0x8a => {
                let len = u8::from_le_bytes(self.array()?);
                let bytes = self.bytes(len.into())?;
                self.push(long(bytes))
            }
            b'G' => {
                self.array::<8>()?;
                self.push(Value::Float)
            }
            b'X' | b'T' => {
                let len = u32::from_le_bytes(self.array()?);
                let text = self.text(len.into())?;
                self.push(Value::Text(text))
            }
            0x8c | b'U' => {
                let len = u8::from_le_bytes(self.array()?);
                let text = self.text(len.into())?;
                self.push(Value::Text(text))
            }
            0x8d => {
                let len = u64::from_le_bytes(self.array()?);
                let text = self.text(len)?;
                self.push(Value::Text(text))
            }
            b'C' => {
                let len = u8::from_le_bytes(self.array()?);
                self.bytes(len.into())?;
                self.push(Value::Bytes)
            }
            b'B' => {
                let len = u32::from_le_bytes(self.array()?);
                self.bytes(len.into())?;
                self.push(Value::Bytes)
            }
            0x8e => {
                let len = u64::from_le_bytes(self.array()?);
                self.bytes(len)?;
                self.push(Value::Bytes)
            }
            _ => {
                let shown = char::from(opcode);
                let shown = if shown.is_ascii_graphic() {
                    format!("`{shown}` (0x{opcode:02x})")
                } else {
                    format!("0x{opcode:02x}")
                };
                let message = format!("the opcode {shown} is none that files of tensors need");
                Err(Error::new(ErrorKind::Unsupported, "pickle", message))
            }
        }
    }

    pub(super) fn value(&self, id: Id) -> &Value {
        &self.values[id as usize]
    }

    fn extend(&mut self, elements: Vec<Id>) -> Result<()> {
        let list = self.top()?;
        match &mut self.values[list as usize] {
            Value::List(list) => list.extend(elements),
            Value::Refused => {}
            _ => {
                return Err(corrupt(
                    "the pickle appends to something that is not a list",
                ));
            }
        }
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Id>) -> Result<()> {
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(corrupt("a key has no value"));
        }
        let dict = self.top()?;
        match &mut self.values[dict as usize] {
            Value::Dict(dict) => dict.extend(pairs.iter().map(|&[key, value]| (key, value))),
            Value::Refused => {}
            _ => {
                return Err(corrupt(
                    "the pickle sets items of something that is not a dict",
                ));
            }
        }
        Ok(())
    }
}

/// An integer of any length, little-endian in two's complement.
fn long(bytes: Vec<u8>) -> Value {
    if bytes.len() > 8 {
        return Value::Long(bytes);
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(&bytes);
    Value::Int(i64::from_le_bytes(wide))
}
