//! Answers commands of one document as a server of RESP2 would, for tests/json/differential.py.
//!
//! A line of standard input is an array of a command's words without the key; a line of standard output its reply: null, a
//! number, a string, an array, or `{"error": text}`.

use std::io::{self, BufRead, Write};

use dunlin_json::{
    Document, Layout, Number, ValueRef,
    operations::{self, Answer, Arithmetic, Condition, Refusal},
    parse,
    path::{Budget, Path},
    write_double,
};
use serde_json::{Value, json};

fn text(document: &Document) -> Value {
    Value::String(String::from_utf8(document.text()).expect("UTF-8"))
}

fn number_text(number: Number) -> String {
    match number {
        Number::Int(number) => number.to_string(),
        Number::Uint(number) => number.to_string(),
        Number::Double(number) => {
            let mut out = Vec::new();
            write_double(number, &mut out);
            String::from_utf8(out).expect("UTF-8")
        }
    }
}

fn shown<T>(answer: Answer<T>, show: impl Fn(T) -> Value) -> Value {
    match answer {
        Answer::One(one) => show(one),
        Answer::Each(each) => each.into_iter().map(|one| one.map_or(Value::Null, &show)).collect(),
    }
}

fn resp(value: ValueRef<'_>) -> Value {
    match (value.as_bool(), value.as_string(), value.as_number()) {
        (Some(value), _, _) => json!(value.to_string()),
        (_, Some(text), _) => json!(String::from_utf8_lossy(text)),
        (_, _, Some(Number::Int(number))) => json!(number),
        // Without an exponent, and without a fraction if it has none.
        (_, _, Some(number)) => json!(number.as_f64().to_string()),
        _ if value.is_object() => {
            let members =
                value.items().flat_map(|(name, value)| [json!(String::from_utf8_lossy(name)), resp(value)]);
            std::iter::once(json!("{")).chain(members).collect()
        }
        _ if value.is_array() => {
            std::iter::once(json!("[")).chain(value.items().map(|(_, item)| resp(item))).collect()
        }
        _ => Value::Null,
    }
}

fn integer(word: &str) -> Result<i64, Refusal> {
    word.parse().map_err(|_| Refusal::BadNumber)
}

fn reply(document: &mut Option<Document>, words: &[&str]) -> Result<Value, Refusal> {
    let (command, words) = words.split_first().expect("a command");
    let path = Path::compile(words.first().unwrap_or(&".").as_bytes());
    if *command == "json.set" {
        let path = path?;
        let value = parse(words[1].as_bytes())?;
        let condition = match words.get(2) {
            Some(&"NX") => Condition::IfMissing,
            Some(&"XX") => Condition::IfThere,
            _ => Condition::Always,
        };
        let done = match document {
            Some(document) => operations::set(document, &path, &value, condition)?,
            None => {
                *document = Some(value);
                true
            }
        };
        return Ok(if done { json!("OK") } else { Value::Null });
    }
    let Some(held) = document else { return Ok(Value::Null) };
    if *command == "json.get" {
        let paths: Vec<Path> =
            words.iter().map(|word| Path::compile(word.as_bytes())).collect::<Result<_, _>>()?;
        let mut out = Vec::new();
        operations::get(held.root(), &paths, Layout::default(), &mut out)?;
        return Ok(Value::String(String::from_utf8(out).expect("UTF-8")));
    }
    let path = path?;
    let values =
        |words: &[&str]| words.iter().map(|word| parse(word.as_bytes())).collect::<Result<Vec<_>, _>>();
    Ok(match *command {
        "json.type" => shown(operations::types(held.root(), &path)?, |kind| {
            kind.map_or(Value::Null, |kind| json!(kind.name()))
        }),
        "json.strlen" => shown(operations::str_len(held.root(), &path)?, |len| json!(len)),
        "json.arrlen" => shown(operations::arr_len(held.root(), &path)?, |len| json!(len)),
        "json.objlen" => shown(operations::obj_len(held.root(), &path)?, |len| json!(len)),
        "json.objkeys" => shown(operations::obj_keys(held.root(), &path)?, |keys| {
            keys.map_or(Value::Null, |keys| {
                keys.iter().map(|key| json!(String::from_utf8_lossy(key))).collect()
            })
        }),
        "json.resp" => {
            let values = path.values(held.root(), &mut Budget::default())?;
            match (path.is_legacy(), values.first()) {
                (true, Some(value)) => resp(*value),
                (true, None) => return Err(Refusal::NoSuchPath(path.text().to_vec())),
                _ => values.into_iter().map(resp).collect(),
            }
        }
        "json.del" => match operations::delete(held, &path)? {
            Some(count) => json!(count),
            None => {
                *document = None;
                json!(1)
            }
        },
        "json.clear" => json!(operations::clear(held, &path)?),
        "json.merge" => {
            let done = operations::merge(held, &path, &parse(words[1].as_bytes())?)?;
            if done { json!("OK") } else { Value::Null }
        }
        "json.toggle" => {
            let legacy = path.is_legacy();
            shown(operations::toggle(held, &path)?, |value| {
                if legacy { json!(value.to_string()) } else { json!(i32::from(value)) }
            })
        }
        "json.numincrby" | "json.nummultby" => {
            let operation = if *command == "json.numincrby" { Arithmetic::Add } else { Arithmetic::Multiply };
            match operations::arithmetic(held, &path, operation, operations::operand(words[1].as_bytes())?)? {
                Answer::One(number) => json!(number_text(number)),
                Answer::Each(numbers) => {
                    let texts: Vec<String> =
                        numbers.into_iter().map(|number| number.map_or("null".into(), number_text)).collect();
                    json!(format!("[{}]", texts.join(",")))
                }
            }
        }
        "json.strappend" => {
            shown(operations::str_append(held, &path, &parse(words[1].as_bytes())?)?, |len| json!(len))
        }
        "json.arrappend" => {
            shown(operations::arr_append(held, &path, &values(&words[1..])?)?, |len| json!(len))
        }
        "json.arrinsert" => {
            let index = integer(words[1])?;
            shown(operations::arr_insert(held, &path, index, &values(&words[2..])?)?, |len| json!(len))
        }
        "json.arrpop" => {
            let index = words.get(1).map_or(Ok(-1), |word| integer(word))?;
            shown(operations::arr_pop(held, &path, index)?, |popped| {
                popped.as_ref().map_or(Value::Null, text)
            })
        }
        "json.arrtrim" => {
            let (start, stop) = (integer(words[1])?, integer(words[2])?);
            shown(operations::arr_trim(held, &path, start, stop)?, |len| json!(len))
        }
        "json.arrindex" => {
            let start = words.get(2).map_or(Ok(0), |word| integer(word))?;
            let stop = words.get(3).map_or(Ok(0), |word| integer(word))?;
            shown(
                operations::arr_index(held.root(), &path, &parse(words[1].as_bytes())?, start, stop)?,
                |index| json!(index),
            )
        }
        other => panic!("no such command: {other}"),
    })
}

fn main() {
    let mut document = None;
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line.expect("standard input");
        let words: Vec<String> = serde_json::from_str(&line).expect("an array of words");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let reply = if words == ["del"] {
            document = None;
            Value::Null
        } else {
            reply(&mut document, &words).unwrap_or_else(|refusal| json!({"error": refusal.to_string()}))
        };
        writeln!(out, "{reply}").expect("standard output");
        out.flush().expect("standard output");
    }
}
