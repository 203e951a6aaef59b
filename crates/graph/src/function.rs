//! [`FunctionLibrary`]: the functions that a graph's nodes can call.

use crate::attr::AttrMap;
use crate::op_def::OpSchema;
use foldhash::{HashMap, HashSet, HashSetExt};
use proto::attr_value::Value;
use proto::{AttrValue, FunctionDef, FunctionDefLibrary, GradientDef};
use std::sync::Arc;
use tensor::{Result, Status};

/// Functions and their gradients, by name.
#[derive(Clone, Default)]
pub struct FunctionLibrary {
    functions: HashMap<String, Arc<Function>>,
    gradients: HashMap<String, String>,
    /// The order of insertion, so that a round trip preserves it.
    order: Vec<String>,
}

struct Function {
    def: FunctionDef,
    schema: Arc<OpSchema>,
}

impl FunctionLibrary {
    /// Returns the library with these functions added. A different function with a name that is taken is an error.
    pub fn extended(&self, library: &FunctionDefLibrary) -> Result<FunctionLibrary> {
        let mut result = self.clone();
        for def in &library.function {
            result.add(def.clone())?;
        }
        for GradientDef { function_name, gradient_func } in &library.gradient {
            result.gradients.insert(function_name.clone(), gradient_func.clone());
        }
        Ok(result)
    }

    /// Adds one function.
    pub fn add(&mut self, def: FunctionDef) -> Result<()> {
        let Some(signature) = &def.signature else {
            return Err(Status::invalid_argument("a function has no signature"));
        };
        let name = signature.name.clone();
        if let Some(existing) = self.functions.get(&name) {
            if existing.def == def {
                return Ok(());
            }
            return Err(Status::invalid_argument(format!(
                "Cannot add function '{name}' because a different function with the same name already exists."
            )));
        }
        let schema = Arc::new(OpSchema::from_proto(signature)?);
        self.functions.insert(name.clone(), Arc::new(Function { def, schema }));
        self.order.push(name);
        Ok(())
    }

    /// Returns a function's definition.
    pub fn get(&self, name: &str) -> Option<&FunctionDef> {
        self.functions.get(name).map(|function| &function.def)
    }

    /// Returns a function's signature.
    pub fn schema(&self, name: &str) -> Option<Arc<OpSchema>> {
        self.functions.get(name).map(|function| function.schema.clone())
    }

    /// Returns the name of the function that computes the gradient of another.
    pub fn gradient(&self, name: &str) -> Option<&str> {
        self.gradients.get(name).map(String::as_str)
    }

    /// Returns the names of all functions in the order of insertion.
    pub fn names(&self) -> &[String] {
        &self.order
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns a library of only the functions that nodes with these ops and attributes can call, directly or through other functions.
    pub fn reachable_from<'a>(&'a self, nodes: impl Iterator<Item = (&'a str, &'a AttrMap)>) -> FunctionLibrary {
        let mut result = FunctionLibrary::default();
        if self.is_empty() {
            return result;
        }
        let mut pending: Vec<&str> = Vec::new();
        for (op, attrs) in nodes {
            pending.push(op);
            called_functions(attrs.values(), &mut pending);
        }
        let mut reached: HashSet<&str> = HashSet::new();
        while let Some(name) = pending.pop() {
            let Some(function) = self.functions.get(name) else { continue };
            if !reached.insert(name) {
                continue;
            }
            for node in &function.def.node_def {
                pending.push(&node.op);
                called_functions(node.attr.values(), &mut pending);
            }
            pending.extend(self.gradient(name));
        }
        for name in self.order.iter().filter(|name| reached.contains(name.as_str())) {
            if let Some(function) = self.functions.get(name) {
                result.functions.insert(name.clone(), function.clone());
                result.order.push(name.clone());
            }
            if let Some(gradient) = self.gradients.get(name) {
                result.gradients.insert(name.clone(), gradient.clone());
            }
        }
        result
    }

    /// Returns the library as a message.
    pub fn to_proto(&self) -> FunctionDefLibrary {
        let mut gradient: Vec<GradientDef> = self
            .gradients
            .iter()
            .map(|(name, gradient)| GradientDef { function_name: name.clone(), gradient_func: gradient.clone() })
            .collect();
        gradient.sort_by(|a, b| a.function_name.cmp(&b.function_name));
        FunctionDefLibrary {
            function: self.order.iter().filter_map(|name| self.get(name)).cloned().collect(),
            gradient,
            ..Default::default()
        }
    }
}

/// Adds the names of the functions that attributes refer to, including those in the attributes of functions.
fn called_functions<'a>(attrs: impl Iterator<Item = &'a AttrValue>, into: &mut Vec<&'a str>) {
    let mut pending: Vec<&AttrValue> = attrs.collect();
    while let Some(value) = pending.pop() {
        let functions = match &value.value {
            Some(Value::Func(function)) => std::slice::from_ref(&**function),
            Some(Value::List(list)) => &list.func,
            _ => continue,
        };
        for function in functions {
            into.push(&function.name);
            pending.extend(function.attr.values());
        }
    }
}
