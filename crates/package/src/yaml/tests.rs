use proptest::prelude::*;

use super::*;

fn complaint(text: &str) -> String {
    parse("f.yaml", text, &Limits { yaml_nodes: 1000, yaml_depth: 8, ..Limits::default() })
        .expect_err("this must be refused")
        .to_string()
}

#[test]
fn scalars_are_typed_by_the_core_schema() {
    let text =
        "a: 1\nb: yes\nc: 1.5\nd: '1'\ne: ~\nf: true\ng: 0x1F\nh: 1 GB\ni: .inf\nj: !!str 7\nk: 1e400\nl: -3";
    let node = parse("f.yaml", text, &Limits::default()).expect("it parses");
    let expected = serde_json::json!({
        "a": 1, "b": "yes", "c": 1.5, "d": "1", "e": null, "f": true, "g": 31, "h": "1 GB", "i": ".inf",
        "j": "7", "k": "1e400", "l": -3
    });
    assert_eq!(node.json(), expected);
}

#[test]
fn aliases_and_merges_are_followed() {
    let node = parse("f.yaml", "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: *x", &Limits::default())
        .expect("it parses");
    assert_eq!(node.json()["y"], serde_json::json!({"a": 1, "b": 3}));
    assert_eq!(node.json()["z"], serde_json::json!({"a": 1, "b": 2}));
    assert_eq!(node.get("y").and_then(|y| y.get("a")).map(Node::line), Some(1));
}

#[test]
fn what_is_refused_says_where() {
    for (text, expected) in [
        ("a: 1\na: 2", "f.yaml:2: 'a' stands twice in this mapping"),
        ("a: 1\n---\nb: 2", "f.yaml:2: a second YAML document begins; expected one document in a file"),
        ("? [a]\n: 1", "f.yaml:1: a mapping's key is not a plain word"),
        ("a:\n  - [[[[[[[[1]]]]]]]]", "f.yaml:2: values nest deeper than the 8 levels that are taken"),
        ("a: &a [*a]", "f.yaml:1: an alias stands inside the value that it names"),
        ("a: {<<: 3}", "f.yaml:1: '<<' names something that is not a mapping"),
        ("", "f.yaml: is empty; expected a TOSCA service template"),
    ] {
        assert_eq!(complaint(text), expected, "{text}");
    }
    assert!(complaint("a: [1\nb: 2").starts_with("f.yaml:"), "{}", complaint("a: [1\nb: 2"));
}

#[test]
fn alias_bombs_are_weighed_not_built() {
    let levels = (1..30).map(|level| {
        let below = vec![format!("*a{}", level - 1); 6].join(",");
        format!("a{level}: &a{level} [{below}]")
    });
    let first = "a0: &a0 [x,x,x,x,x,x,x,x,x]".to_owned();
    let text = std::iter::once(first).chain(levels).collect::<Vec<_>>().join("\n");
    assert!(
        complaint(&text).contains("holds more than 1000 values, aliases followed"),
        "{}",
        complaint(&text)
    );
}

/// Values as JSON writes them, which YAML reads too.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_is_yaml(value in json()) {
        let node = parse("f.yaml", &value.to_string(), &Limits::default()).expect("JSON is YAML");
        prop_assert_eq!(node.json(), value);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "[-a-c:?,\\[\\]{}&*!|>'\"%@` \\n\\t#~<=0-9.]{0,80}") {
        if let Err(rejection) = parse("f.yaml", &text, &Limits::default()) {
            prop_assert!(!rejection.reason.is_empty());
        }
    }
}
