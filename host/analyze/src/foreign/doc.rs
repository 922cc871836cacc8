//! Reading a JSON document by paths such as `campaign.per_run[0].outage_s`.

use serde_json::Value;

/// A parsed document.
pub(crate) struct Doc<'a> {
    root: &'a Value,
}

impl<'a> Doc<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        Self { root }
    }

    /// The value at a path; `None` if there is none, or it is null.
    pub(crate) fn get(&self, path: &str) -> Option<&'a Value> {
        let mut at = self.root;
        for part in path.split('.') {
            let (key, mut rest) = match part.find('[') {
                Some(i) => part.split_at(i),
                None => (part, ""),
            };
            at = at.get(key)?;
            while let Some(inner) = rest.strip_prefix('[') {
                let (index, tail) = inner.split_once(']')?;
                at = at.get(index.parse::<usize>().ok()?)?;
                rest = tail;
            }
        }
        (!at.is_null()).then_some(at)
    }

    /// Length of the array at a path; 0 if there is none.
    pub(crate) fn len(&self, path: &str) -> usize {
        self.get(path).and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// Keys of the object at a path, sorted.
    pub(crate) fn keys(&self, path: &str) -> Vec<String> {
        let mut keys: Vec<String> = self
            .get(path)
            .and_then(Value::as_object)
            .map(|o| o.keys().cloned().collect())
            .unwrap_or_default();
        keys.sort();
        keys
    }

    /// The text at a path.
    pub(crate) fn text(&self, path: &str) -> Option<&'a str> {
        self.get(path).and_then(Value::as_str)
    }
}

/// Calls `visit` with the path of every leaf.
pub(crate) fn walk(value: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                let next = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                walk(inner, &next, visit);
            }
        }
        Value::Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                walk(inner, &format!("{path}[{i}]"), visit);
            }
        }
        leaf => visit(path, leaf),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_reach_leaves_and_come_back() {
        let root = serde_json::json!({"a": [{"b": 1}, {"b": null}], "c": "x"});
        let doc = Doc::new(&root);
        assert_eq!(doc.get("a[0].b"), Some(&Value::from(1)));
        assert_eq!(doc.get("a[1].b"), None);
        assert_eq!(doc.get("a[9].b"), None);
        assert_eq!(doc.get("a[x].b"), None);
        assert_eq!(doc.len("a"), 2);
        let mut paths = Vec::new();
        walk(&root, "", &mut |p, _| paths.push(p.to_owned()));
        paths.sort();
        assert_eq!(paths, ["a[0].b", "a[1].b", "c"]);
    }
}
