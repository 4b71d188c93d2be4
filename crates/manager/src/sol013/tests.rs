//! Tables of queries and what they choose.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

static VNF: Resource = Resource {
    name: "VnfInstance",
    mandatory: &["id", "state", "_links"],
    optional: &["name", "info", "metadata", "extensions", "number", "flag", "created", "list", "odd/name,@"],
    excluded: &["info", "metadata"],
    heavy: &["info"],
};

fn entry() -> Value {
    json!({
        "id": "7", "state": "INSTANTIATED", "_links": {"self": {"href": "x"}},
        "name": "it's (one), two", "number": 10, "flag": true, "created": "2026-11-15T12:00:00Z",
        "info": {"flavour": "simple", "vnfcs": [{"vdu": "a", "n": 1}, {"vdu": "b", "n": 2}], "empty": []},
        "metadata": {"colour": "red", "a/b": "slash", "x~1y": "tilde", "nothing": null},
        "list": ["p", "q"], "odd/name,@": "odd", "extensions": {},
    })
}

fn listing(pairs: &[(&str, &str)]) -> Result<Listing, ListingError> {
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Listing::parse(&VNF, &pairs, "/vnflcm/v2/vnf_instances")
}

#[test]
fn filters_choose() {
    let cases = [
        ("(eq,id,7)", true),
        ("(eq,id,8)", false),
        ("(neq,id,8)", true),
        ("(neq,id,7)", false),
        ("(in,id,1,7,9)", true),
        ("(in,id,1,9)", false),
        ("(nin,id,1,9)", true),
        ("(nin,id,1,7)", false),
        ("(eq,name,'it''s (one), two')", true),
        ("(cont,name,'(one)')", true),
        ("(cont,name,three,two)", true),
        ("(cont,name,three)", false),
        ("(ncont,name,three)", true),
        ("(ncont,name,three,two)", false),
        // Numbers are compared as numbers: as text 9 would be more than 10.
        ("(gt,number,9)", true),
        ("(gt,number,10)", false),
        ("(gte,number,10)", true),
        ("(lt,number,10.5)", true),
        ("(lte,number,9.99)", false),
        ("(eq,number,10.0)", true),
        ("(eq,number,ten)", false),
        ("(gt,number,ten)", false),
        ("(eq,flag,true)", true),
        ("(eq,flag,false)", false),
        ("(eq,flag,1)", false),
        // Times are compared as times, whatever zone they are written in.
        ("(eq,created,2026-11-15T13:00:00+01:00)", true),
        ("(gt,created,2026-11-15T12:30:00+01:00)", true),
        ("(lt,created,2026-11-16T00:00:00Z)", true),
        // A path into things and through arrays: one that fits is enough.
        ("(eq,info/flavour,simple)", true),
        ("(eq,info/vnfcs/vdu,b)", true),
        ("(eq,info/vnfcs/vdu,c)", false),
        ("(neq,info/vnfcs/vdu,a)", true),
        ("(gt,info/vnfcs/n,1)", true),
        ("(eq,list,q)", true),
        ("(eq,list,r)", false),
        ("(eq,info/empty,x)", false),
        ("(neq,info/empty,x)", false),
        // What is not there holds for nobody.
        ("(eq,extensions/none,x)", false),
        ("(neq,extensions/none,x)", false),
        ("(eq,metadata/nothing,null)", false),
        ("(eq,info,simple)", false),
        ("(neq,info,simple)", false),
        ("(eq,id/deeper,7)", false),
        // Keys and escapes.
        ("(eq,metadata/@key,colour)", true),
        ("(eq,metadata/@key,none)", false),
        ("(cont,metadata/@key,olo)", true),
        ("(eq,metadata/a~1b,slash)", true),
        ("(eq,metadata/x~01y,tilde)", true),
        ("(eq,odd~1name~a~b,odd)", true),
        // All of several.
        ("(eq,id,7);(gt,number,1)", true),
        ("(eq,id,7);(gt,number,100)", false),
        ("(eq,name,)", false),
    ];
    for (text, expected) in cases {
        let listing = listing(&[("filter", text)]).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(listing.matches(&entry()), expected, "{text}");
    }
    let two = listing(&[("filter", "(eq,id,7)"), ("filter", "(eq,id,8)")]).expect("two filters");
    assert!(!two.matches(&entry()), "several parameters are one condition each");
}

#[test]
fn broken_filters_say_where() {
    let cases = [
        ("", "character 1, at the end: a condition begins"),
        ("eq,id,7", "character 1, before 'e': a condition begins"),
        ("(eq,id,7", "character 9, at the end: a condition ends"),
        ("(eq,id,7)x", "character 10, before 'x': conditions are separated"),
        ("(eq,id,7);", "character 11, at the end: a condition begins"),
        ("(is,id,7)", "\"is\" is no operator; there are eq, neq, gt"),
        ("(eq)", "character 4, before ')': a comma and an attribute"),
        ("(eq,)", "character 5, before ')': the name of an attribute is missing"),
        ("(eq,id)", "character 7, before ')': a comma and a value"),
        ("(eq,id,7,8)", "takes one value"),
        ("(eq,id,'7)", "character 8, before '\\'': this quote is never closed"),
        ("(eq,id,it's)", "is quoted"),
        ("(eq,id//x,7)", "the name of an attribute is missing"),
        ("(eq,a~zb,7)", "after ~ stands"),
        ("(eq,@key,7)", "@key stands after"),
        ("(eq,metadata/@key/x,7)", "nothing can follow @key"),
        ("(eq,nope,7)", "VnfInstance has no attribute \"nope\"; it has id, state"),
        ("(eq,ä,7)", "has no attribute"),
    ];
    for (text, expected) in cases {
        let error = listing(&[("filter", text)]).expect_err(text).to_string();
        assert!(error.starts_with("filter: ") && error.contains(expected), "{text}: {error}");
    }
    let many = vec!["(eq,id,7)"; 65].join(";");
    assert!(listing(&[("filter", &many)]).is_err(), "conditions are bounded");
}

#[test]
fn selectors_choose_attributes() {
    let keys = |pairs: &[(&str, &str)]| {
        let shown = listing(pairs).unwrap_or_else(|error| panic!("{pairs:?}: {error}")).select(entry());
        let Value::Object(map) = shown else { panic!("an entry is an object") };
        let mut keys: Vec<String> = map.keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    let default = "_links created extensions flag id list name number odd/name,@ state";
    let all = "_links created extensions flag id info list metadata name number odd/name,@ state";
    assert_eq!(keys(&[]), default);
    assert_eq!(keys(&[("exclude_default", "")]), default);
    assert_eq!(keys(&[("all_fields", "")]), all);
    assert_eq!(keys(&[("all_fields", "true")]), all);
    assert_eq!(keys(&[("fields", "name,info")]), "_links id info name state");
    assert_eq!(
        keys(&[("exclude_fields", "name,info,id")]),
        "_links created extensions flag id list metadata number odd/name,@ state",
        "what must be there stays"
    );
    assert_eq!(
        keys(&[("fields", "info"), ("exclude_default", "")]),
        "_links created extensions flag id info list name number odd/name,@ state"
    );
    let deep = listing(&[("fields", "info/vnfcs/vdu")]).expect("a path").select(entry());
    assert_eq!(deep["info"], json!({"vnfcs": [{"vdu": "a"}, {"vdu": "b"}]}));
    let deep = listing(&[("exclude_fields", "info/vnfcs/vdu,info/empty")]).expect("a path").select(entry());
    assert_eq!(deep["info"], json!({"flavour": "simple", "vnfcs": [{"n": 1}, {"n": 2}]}));
    let both = listing(&[("fields", "info,info/flavour")]).expect("whole and part").select(entry());
    assert_eq!(both["info"], entry()["info"], "a whole attribute stays whole");
    // A part that is not there is no mistake; an attribute that cannot be there is.
    assert!(listing(&[("fields", "info/none")]).is_ok());
    for (name, value) in
        [("fields", "nope"), ("exclude_fields", "nope/x"), ("fields", "a,,b"), ("fields", "")]
    {
        let error = listing(&[(name, value)]).expect_err(value).to_string();
        assert!(error.starts_with(name), "{error}");
    }
}

#[test]
fn selectors_that_contradict_each_other_are_refused() {
    let bad: &[&[(&str, &str)]] = &[
        &[("all_fields", ""), ("fields", "name")],
        &[("all_fields", ""), ("exclude_fields", "name")],
        &[("all_fields", ""), ("exclude_default", "")],
        &[("fields", "name"), ("exclude_fields", "info")],
        &[("exclude_fields", "info"), ("exclude_default", "")],
        &[("all_fields", "maybe")],
        &[("all_records", "no")],
    ];
    for pairs in bad {
        assert!(listing(pairs).is_err(), "{pairs:?}");
    }
}

#[test]
fn what_costs_is_fetched_when_it_is_needed() {
    assert!(!listing(&[]).expect("good").wants_body());
    assert!(listing(&[("all_fields", "")]).expect("good").wants_body());
    assert!(listing(&[("fields", "info/flavour")]).expect("good").wants_body());
    assert!(listing(&[("filter", "(eq,info/flavour,x)")]).expect("good").wants_body());
    assert!(!listing(&[("exclude_fields", "info")]).expect("good").wants_body());
    let listing = listing(&[("filter", "(in,state,A,B);(eq,info/flavour,x);(gt,number,1);(eq,name,n)")]);
    let listing = listing.expect("good");
    let pushed: Vec<(&str, Vec<String>)> =
        listing.equal_conditions().into_iter().map(|(name, values)| (name, values.to_vec())).collect();
    assert_eq!(
        pushed,
        vec![("state", vec!["A".to_owned(), "B".to_owned()]), ("name", vec!["n".to_owned()])],
        "others cannot be looked for in a column"
    );
}

#[test]
fn markers_are_ours_and_for_this_list() {
    let marker = Marker::seal("VnfInstance", "abc");
    let good = listing(&[("nextpage_opaque_marker", &marker)]).expect("our own");
    assert_eq!(good.marker.as_deref(), Some("abc"));
    let other = Marker::seal("VnfLcmOpOcc", "abc");
    for bad in ["garbage", "", "AAAAAAAA", "%%%", &other, &marker[1..], &format!("{marker}A")] {
        let error = listing(&[("nextpage_opaque_marker", bad)]).expect_err(bad);
        assert_eq!(error.parameter, "nextpage_opaque_marker", "{bad}");
    }
}

#[tokio::test]
async fn pages_follow_each_other_without_gaps() {
    let all: Vec<(String, Value)> = (0..1000_u32)
        .map(|number| (format!("{number:04}"), json!({"id": format!("{number:04}"), "number": number % 4})))
        .collect();
    let mut marker: Option<String> = None;
    let mut seen = Vec::new();
    loop {
        let mut pairs = vec![("filter", "(eq,number,1)"), ("all_fields", "")];
        if let Some(marker) = &marker {
            pairs.push(("nextpage_opaque_marker", marker));
        }
        let listing = listing(&pairs).expect("good");
        let fetch = |after: Option<String>, limit: u32| {
            let after = after.unwrap_or_default();
            let rows = all.iter().filter(|(id, _)| *id > after).take(limit as usize).cloned().collect();
            std::future::ready(Ok::<Vec<_>, ()>(rows))
        };
        let (page, last) = listing.collect(fetch).await.expect("rows");
        seen.extend(page.iter().map(|entry| entry["id"].as_str().expect("an id").to_owned()));
        let Some(last) = last else {
            assert_eq!(page.len(), 50);
            break;
        };
        assert_eq!(page.len(), PAGE);
        let link = listing.next_link("http://m:1/", &last);
        let next = format!(
            "<http://m:1/vnflcm/v2/vnf_instances?filter=(eq,number,1)&all_fields=true&nextpage_opaque_marker={}>;rel=\"next\"",
            Marker::seal("VnfInstance", &last)
        );
        assert_eq!(link, next, "the rest of the query is kept");
        marker = Some(Marker::seal("VnfInstance", &last));
    }
    let expected: Vec<String> = (0..1000).filter(|n| n % 4 == 1).map(|n| format!("{n:04}")).collect();
    assert_eq!(seen, expected);

    let whole = listing(&[("all_records", "yes")]).expect("good");
    let fetch = |after: Option<String>, limit: u32| {
        let after = after.unwrap_or_default();
        let rows = all.iter().filter(|(id, _)| *id > after).take(limit as usize).cloned().collect();
        std::future::ready(Ok::<Vec<_>, ()>(rows))
    };
    let (page, last) = whole.collect(fetch).await.expect("rows");
    assert_eq!((page.len(), last), (1000, None));
}

proptest! {
    #[test]
    fn no_text_makes_a_filter_panic(text in "[()',;/~@a-z0-9ä]{0,40}") {
        if let Ok(listing) = listing(&[("filter", &text)]) {
            listing.matches(&entry());
        }
    }

    #[test]
    fn any_value_can_be_quoted(value in ".{0,20}") {
        let text = format!("(eq,name,'{}')", value.replace('\'', "''"));
        let listing = listing(&[("filter", &text)]).expect("quoted");
        let found = json!({"name": value});
        prop_assert!(listing.matches(&found));
    }
}

#[test]
fn needles_are_in_the_text_of_what_a_condition_holds_for() {
    let text = entry().to_string();
    for (filter, needles) in [
        ("(eq,metadata/colour,red)", Some(vec!["\"colour\":\"red\"", "\"colour\":["])),
        (
            "(in,metadata/colour,1,red)",
            Some(vec!["\"colour\":\"1\"", "\"colour\":\"red\"", "\"colour\":1", "\"colour\":["]),
        ),
        ("(eq,info/vnfcs/n,2)", Some(vec!["\"n\":\"2\"", "\"n\":2", "\"n\":["])),
        ("(cont,metadata/colour,ed)", Some(vec!["ed"])),
        ("(cont,name,'(one)')", Some(vec!["(one)"])),
        ("(eq,number,10)", Some(vec!["10"])),
        ("(eq,number,10.0)", None),
        ("(eq,created,2026-11-15T13:00:00+01:00)", None),
        ("(neq,metadata/colour,blue)", None),
        ("(gt,number,1)", None),
    ] {
        let listing = listing(&[("filter", filter)]).unwrap();
        let condition = &listing.filter.conditions[0];
        assert!(condition.holds(&entry()), "{filter}");
        let found = condition.needles();
        let wanted = needles.map(|all| all.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>());
        assert_eq!(found, wanted, "{filter}");
        assert!(found.is_none_or(|all| all.iter().any(|needle| text.contains(needle))), "{filter}");
    }
    let quote = listing(&[("filter", "(eq,name,'a\"b\\c')")]).unwrap();
    assert_eq!(quote.filter.conditions[0].needles(), Some(vec!["a\\\"b\\\\c".to_owned()]));
}
