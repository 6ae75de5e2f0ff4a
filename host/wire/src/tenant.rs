//! Names inside JSON, as a tenant's clients use them.

use serde_json::Value;
use treadle_model::Tenant;

/// Removes the tenant's prefix from every name in some JSON.
pub fn without_tenant(tenant: &Tenant, value: Value) -> Value {
    match value {
        Value::String(text) => {
            Value::String(tenant.outside(&text).map_or(text.clone(), str::to_owned))
        }
        Value::Array(list) => list
            .into_iter()
            .map(|item| without_tenant(tenant, item))
            .collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, item)| (key, without_tenant(tenant, item)))
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use treadle_model::ClientName;

    #[test]
    fn json_is_cleaned_to_its_leaves() {
        let tenant = Tenant::new("acme");
        let inside = tenant.inside(&ClientName::literal("p")).into_owned();
        let event = json!({"program": inside, "list": [{"key": inside}, 5, "free"]});
        let expected = json!({"program": "p", "list": [{"key": "p"}, 5, "free"]});
        assert_eq!(without_tenant(&tenant, event), expected);
    }
}
