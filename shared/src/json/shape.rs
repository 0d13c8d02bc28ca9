//! The shape of a record: what its JSON Schema says of objects, lists and words, held while it is
//! read.
//!
//! The derived readers are more generous than the schema: they take a list of values for an object,
//! the number of a variant for its name, and `{"name": null}` for `"name"`. What is read by mistake
//! is worse than what is refused, so each record is held to its own schema. Variants of a record
//! are put together here; the derived reader decides which of them is meant.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::{Map, Value};

/// The shape of a record, and of all that it holds.
#[derive(Debug)]
pub struct Shape {
    /// The record itself is the last one.
    nodes: Vec<Node>,
}

/// What may be at one place.
#[derive(Debug, Default)]
struct Node {
    /// Anything.
    is_open: bool,
    takes_object: bool,
    takes_list: bool,
    takes_number: bool,
    takes_bool: bool,
    takes_null: bool,
    takes_any_text: bool,
    /// The texts, where not any one is taken.
    words: BTreeSet<String>,
    /// The fields of an object, each with its node.
    fields: BTreeMap<String, usize>,
    /// What every other field may be, if that is described.
    others: Option<usize>,
    /// The items of a list.
    items: Option<usize>,
}

impl Shape {
    /// Returns the shape of a type.
    pub fn of<T: JsonSchema>() -> Self {
        let schema = SchemaSettings::draft2020_12()
            .into_generator()
            .into_root_schema_for::<T>()
            .to_value();
        let mut builder = Builder {
            root: &schema,
            nodes: Vec::new(),
            named: BTreeMap::new(),
        };
        builder.node(&[&schema]);
        Self {
            nodes: builder.nodes,
        }
    }

    /// Checks a value while it is read.
    ///
    /// # Errors
    /// Which value does not belong where it is.
    pub fn check<'de, D: Deserializer<'de>>(&self, value: D) -> Result<(), D::Error> {
        PlaceInRecord {
            shape: self,
            node: 0,
        }
        .deserialize(value)
    }
}

/// Builds the nodes from a schema.
struct Builder<'s> {
    root: &'s Value,
    nodes: Vec<Node>,
    /// The nodes of what has a name in the schema: a record can hold one of its kind.
    named: BTreeMap<String, usize>,
}

impl<'s> Builder<'s> {
    /// Makes the node of a place that all of these schemas describe, and returns its number.
    fn node(&mut self, schemas: &[&'s Value]) -> usize {
        let name = match schemas {
            [only] => only["$ref"].as_str(),
            _ => None,
        };
        if let Some(&known) = name.and_then(|name| self.named.get(name)) {
            return known;
        }
        let number = self.nodes.len();
        self.nodes.push(Node::default());
        self.named
            .extend(name.map(|name| (name.to_owned(), number)));
        let mut parts = Vec::new();
        for schema in schemas.iter() {
            self.take_apart(schema, &mut parts);
        }
        let mut node = Node::default();
        let mut fields: BTreeMap<&str, Vec<&'s Value>> = BTreeMap::new();
        let mut others = Vec::new();
        let mut items = Vec::new();
        for part in parts {
            node.add_types(part);
            for (name, field) in object(&part["properties"]) {
                fields.entry(name).or_default().push(field);
            }
            others.extend(part.get("additionalProperties").filter(|it| it.is_object()));
            others.extend(object(&part["patternProperties"]).map(|(_, field)| field));
            items.extend(part.get("items").filter(|it| it.is_object()));
            items.extend(part["prefixItems"].as_array().into_iter().flatten());
        }
        node.fields = fields
            .into_iter()
            .map(|(name, schemas)| (name.to_owned(), self.node(&schemas)))
            .collect();
        node.others = (!others.is_empty()).then(|| self.node(&others));
        node.items = (!items.is_empty()).then(|| self.node(&items));
        self.nodes[number] = node;
        number
    }

    /// Adds a schema, what it refers to, and its variants.
    fn take_apart(&self, schema: &'s Value, parts: &mut Vec<&'s Value>) {
        parts.push(schema);
        if let Some(name) = schema["$ref"].as_str() {
            let at = name.trim_start_matches('#');
            if let Some(it) = self.root.pointer(at) {
                self.take_apart(it, parts);
            }
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for it in schema[key].as_array().into_iter().flatten() {
                self.take_apart(it, parts);
            }
        }
    }
}

fn object(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value
        .as_object()
        .into_iter()
        .flat_map(Map::iter)
        .map(|(name, value)| (name.as_str(), value))
}

impl Node {
    fn add_types(&mut self, part: &Value) {
        let one = part["type"].as_str();
        let several = part["type"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let types: Vec<&str> = one.into_iter().chain(several).collect();
        let words = part
            .get("const")
            .into_iter()
            .chain(part["enum"].as_array().into_iter().flatten());
        let words: Vec<&str> = words.filter_map(Value::as_str).collect();
        let describes = part.as_object().is_some_and(|part| {
            ["$ref", "anyOf", "oneOf", "allOf", "properties"]
                .iter()
                .any(|key| part.contains_key(*key))
        });
        self.is_open |= types.is_empty() && words.is_empty() && !describes;
        self.takes_object |=
            types.contains(&"object") || types.is_empty() && part["properties"].is_object();
        self.takes_list |= types.contains(&"array");
        self.takes_number |= types.contains(&"number") || types.contains(&"integer");
        self.takes_bool |= types.contains(&"boolean");
        self.takes_null |= types.contains(&"null");
        self.takes_any_text |= types.contains(&"string") && words.is_empty();
        self.words.extend(words.into_iter().map(str::to_owned));
    }
}

/// A place in a record, to be checked.
#[derive(Clone, Copy)]
struct PlaceInRecord<'s> {
    shape: &'s Shape,
    node: usize,
}

impl<'s> PlaceInRecord<'s> {
    fn node(self) -> &'s Node {
        &self.shape.nodes[self.node]
    }

    fn at(self, node: usize) -> Self {
        Self { node, ..self }
    }

    fn refuse<E: Error>(self, unexpected: Unexpected<'_>) -> Result<(), E> {
        Err(E::invalid_type(unexpected, &self))
    }
}

impl<'de> DeserializeSeed<'de> for PlaceInRecord<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        if self.node().is_open {
            return IgnoredAny::deserialize(value).map(|_| ());
        }
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PlaceInRecord<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node();
        let types = [
            (node.takes_object, "an object"),
            (node.takes_list, "a list"),
            (node.takes_number, "a number"),
            (node.takes_bool, "true or false"),
            (node.takes_any_text, "a string"),
            (node.takes_null, "null"),
        ];
        let types = types
            .into_iter()
            .filter(|(takes, _)| *takes)
            .map(|(_, what)| what.to_owned());
        let words = node.words.iter().map(|word| format!("{word:?}"));
        to.write_str(&types.chain(words).collect::<Vec<_>>().join(" or "))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        if self.node().takes_bool {
            Ok(())
        } else {
            self.refuse(Unexpected::Bool(value))
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        if self.node().takes_number {
            Ok(())
        } else {
            self.refuse(Unexpected::Unsigned(value))
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        if self.node().takes_number {
            Ok(())
        } else {
            self.refuse(Unexpected::Signed(value))
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        if self.node().takes_number {
            Ok(())
        } else {
            self.refuse(Unexpected::Float(value))
        }
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.node().takes_null {
            Ok(())
        } else {
            self.refuse(Unexpected::Unit)
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let node = self.node();
        if node.takes_any_text || node.words.contains(text) {
            return Ok(());
        }
        self.refuse(Unexpected::Str(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if !self.node().takes_list {
            return self.refuse(Unexpected::Seq);
        }
        let Some(items) = self.node().items else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        while list.next_element_seed(self.at(items))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let node = self.node();
        if !node.takes_object {
            return self.refuse(Unexpected::Map);
        }
        while let Some(field) = object.next_key::<Cow<'_, str>>()? {
            match node.fields.get(field.as_ref()).copied().or(node.others) {
                Some(field) => object.next_value_seed(self.at(field))?,
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
