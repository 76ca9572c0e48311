//! InfluxDB's API of organisations, buckets, tokens and schemas, as its clients call it.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{Api, PATIENCE};

impl Api {
    /// Sends a request with a JSON body; `token` may be empty.
    async fn call(&self, method: &str, uri: &str, token: &str, body: Value) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(uri);
        if !token.is_empty() {
            request = request.header("authorization", format!("Token {token}"));
        }
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let (status, _, body) = self.send(request.body(Body::from(text)).unwrap()).await;
        (status.as_u16(), serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn write(&self, bucket: &str, token: &str, lines: &str) -> (u16, Value) {
        let uri = format!("/api/v2/write?org=o&bucket={bucket}&precision=ns");
        let request = Request::post(uri).header("authorization", format!("Token {token}"));
        let request = request.body(Body::from(lines.to_owned())).unwrap();
        let (status, _, body) = self.send(request).await;
        (status.as_u16(), serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn sql(&self, database: &str, token: &str, sql: &str) -> (u16, Value) {
        let body = json!({ "db": database, "q": sql, "format": "json" });
        let request = Request::post("/api/v3/query_sql")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let (status, _, body) = self.send(request).await;
        (status.as_u16(), serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Sets the cluster up; returns the response.
    async fn set_up(&self) -> Value {
        let body = json!({
            "username": "ada",
            "password": "much-too-simple",
            "org": "acme",
            "bucket": "first",
            "retentionPeriodSeconds": 7200,
        });
        let (status, made) = self.call("POST", "/api/v2/setup", "", body).await;
        assert_eq!(status, 201, "{made}");
        made
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[tokio::test]
async fn a_cluster_is_set_up_once() {
    let api = Api::new();
    assert_eq!(api.get("/api/v2/setup").await.1, json!({"allowed": true}));
    let short = json!({"username": "ada", "password": "short", "org": "acme", "bucket": "b"});
    assert_eq!(api.call("POST", "/api/v2/setup", "", short.clone()).await.0, 400);
    let made = api.set_up().await;
    assert_eq!((&made["user"]["name"], &made["org"]["name"]), (&json!("ada"), &json!("acme")));
    assert_eq!(made["bucket"]["orgID"], made["org"]["id"]);
    let rules = json!([{"type": "expire", "everySeconds": 7200}]);
    assert_eq!(made["bucket"]["retentionRules"], rules);
    assert_eq!(api.get("/api/v2/setup").await.1, json!({"allowed": false}));
    let (status, refused) = api.call("POST", "/api/v2/setup", "", short).await;
    assert_eq!((status, &refused["code"]), (422, &json!("conflict")));
    // Nobody is the superuser any more, and the new token is.
    assert_eq!(api.call("GET", "/api/v2/buckets", "", Value::Null).await.0, 401);
    let token = text(&made["auth"]["token"]);
    let (status, list) = api.call("GET", "/api/v2/buckets?name=first", &token, Value::Null).await;
    assert_eq!((status, list["buckets"].as_array().unwrap().len()), (200, 1));
    let basic = Request::get("/status").header("authorization", "Token ada:much-too-simple");
    let (status, ..) = api.send(basic.body(Body::empty()).unwrap()).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_bucket_is_made_changed_and_dropped() {
    let api = Api::new();
    let made = api.set_up().await;
    let (token, org) = (text(&made["auth"]["token"]), text(&made["org"]["id"]));
    let rule = json!([{"type": "expire", "everySeconds": 3600, "shardGroupDurationSeconds": 0}]);
    let body = json!({"name": "air sensors", "orgID": org, "retentionRules": rule});
    let (status, bucket) = api.call("POST", "/api/v2/buckets", &token, body.clone()).await;
    assert_eq!(status, 201, "{bucket}");
    assert_eq!((&bucket["schemaType"], &bucket["orgID"]), (&json!("implicit"), &json!(org)));
    let (status, taken) = api.call("POST", "/api/v2/buckets", &token, body).await;
    assert_eq!((status, &taken["code"]), (422, &json!("conflict")));
    let uri = format!("/api/v2/buckets/{}", text(&bucket["id"]));
    let edit = json!({"name": "air sensors", "retentionRules": []});
    let (status, changed) = api.call("PATCH", &uri, &token, edit).await;
    assert_eq!((status, &changed["retentionRules"]), (200, &json!([])), "{changed}");
    let short = json!({"retentionRules": [{"type": "expire", "everySeconds": 60}]});
    assert_eq!(api.call("PATCH", &uri, &token, short).await.0, 422);
    assert_eq!(api.call("PATCH", &uri, &token, json!({"name": "other"})).await.0, 422);
    // By name and by id.
    assert_eq!(api.write("air%20sensors", &token, "m v=1 1").await.0, 204);
    assert_eq!(api.write(&text(&bucket["id"]), &token, "m v=2 2").await.0, 204);
    let rows = api.sql("air sensors", &token, "SELECT count(*) AS n FROM m").await.1;
    assert_eq!(rows, json!([{"n": 2}]));
    assert_eq!(api.call("DELETE", &uri, &token, Value::Null).await.0, 204);
    assert_eq!(api.call("GET", &uri, &token, Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_token_is_for_the_buckets_that_it_names() {
    let api = Api::new();
    let made = api.set_up().await;
    let (root, org) = (text(&made["auth"]["token"]), text(&made["org"]["id"]));
    for bucket in ["b1", "b2"] {
        assert_eq!(api.write(bucket, &root, "m,c=x v=1 1\nm,c=y v=2 1").await.0, 204);
    }
    let list = api.call("GET", "/api/v2/buckets?name=b1", &root, Value::Null).await.1;
    let id = text(&list["buckets"][0]["id"]);
    let create = async |resource: Value| {
        let permission = json!({"action": "read", "resource": resource});
        let body = json!({"orgID": org, "description": "reader", "permissions": [permission]});
        let (status, made) = api.call("POST", "/api/v2/authorizations", &root, body).await;
        assert_eq!(status, 201, "{made}");
        made
    };
    let made = create(json!({"type": "buckets", "id": id, "orgID": org})).await;
    assert_eq!(made["permissions"][0]["resource"]["id"], json!(id));
    let reader = text(&made["token"]);
    let count = "SELECT count(*) AS n FROM m";
    assert_eq!(api.sql("b1", &reader, count).await, (200, json!([{"n": 2}])));
    assert_eq!(api.sql("b2", &reader, count).await.0, 404);
    assert_eq!(api.write("b1", &reader, "m,c=x v=3 3").await.0, 403);
    assert_eq!(api.write("b2", &reader, "m,c=x v=3 3").await.0, 404);
    let seen = api.call("GET", "/api/v2/buckets", &reader, Value::Null).await.1;
    assert_eq!(seen["buckets"].as_array().unwrap().len(), 1);
    // A part of the rows.
    let rows = json!({"type": "buckets", "id": id, "rows": {"c": ["x"]}});
    let narrow = create(rows).await;
    assert_eq!(narrow["permissions"][0]["resource"]["rows"], json!({"c": ["x"]}));
    let narrow = text(&narrow["token"]);
    assert_eq!(api.sql("b1", &narrow, count).await, (200, json!([{"n": 1}])));
    // The text is shown once.
    let uri = format!("/api/v2/authorizations/{}", text(&made["id"]));
    let (status, shown) = api.call("GET", &uri, &root, Value::Null).await;
    assert_eq!((status, shown.get("token")), (200, None));
    let (status, _) = api.call("PATCH", &uri, &root, json!({"status": "inactive"})).await;
    assert_eq!(status, 200);
    assert_eq!(api.sql("b1", &reader, count).await.0, 401);
    assert_eq!(api.call("DELETE", &uri, &root, Value::Null).await.0, 204);
    assert_eq!(api.call("GET", &uri, &root, Value::Null).await.0, 404);
    let tasks = json!([{"action": "read", "resource": {"type": "tasks"}}]);
    let (status, _) =
        api.call("POST", "/api/v2/authorizations", &root, json!({"permissions": tasks})).await;
    assert_eq!(status, 422);
}

#[tokio::test]
async fn organisations_do_not_see_each_other() {
    let api = Api::new();
    let root = text(&api.set_up().await["auth"]["token"]);
    let mut tokens = Vec::new();
    for name in ["north", "south"] {
        let (status, org) = api.call("POST", "/api/v2/orgs", &root, json!({"name": name})).await;
        assert_eq!(status, 201, "{org}");
        let org = text(&org["id"]);
        let body = json!({"name": format!("of {name}"), "orgID": org});
        let (status, bucket) = api.call("POST", "/api/v2/buckets", &root, body).await;
        assert_eq!((status, &bucket["orgID"]), (201, &json!(org)), "{bucket}");
        let all = ["read", "write"]
            .map(|action| json!({"action": action, "resource": {"type": "buckets", "orgID": org}}));
        let body = json!({"orgID": org, "permissions": all});
        let (status, made) = api.call("POST", "/api/v2/authorizations", &root, body).await;
        assert_eq!(status, 201, "{made}");
        tokens.push((org, text(&made["token"])));
    }
    let (status, twice) = api.call("POST", "/api/v2/orgs", &root, json!({"name": "north"})).await;
    assert_eq!((status, &twice["code"]), (422, &json!("conflict")));
    let [(north, token), (south, _)] = tokens.as_slice() else { panic!() };
    let names = async |uri: &str, field: &str| {
        let (status, list) = api.call("GET", uri, token, Value::Null).await;
        assert_eq!(status, 200, "{list}");
        let list = list[field].as_array().unwrap().iter().map(|item| text(&item["name"]));
        list.collect::<Vec<_>>()
    };
    assert_eq!(names(&format!("/api/v2/buckets?orgID={north}"), "buckets").await, ["of north"]);
    assert_eq!(names("/api/v2/orgs", "orgs").await, ["north"]);
    assert!(!names("/api/v2/buckets", "buckets").await.contains(&"of south".to_owned()));
    let foreign = format!("/api/v2/buckets?orgID={south}");
    assert_eq!(api.call("GET", &foreign, token, Value::Null).await.0, 404);
    assert_eq!(api.write("of%20north", token, "m v=1 1").await.0, 204);
    assert_eq!(api.write("of%20south", token, "m v=1 1").await.0, 404);
    // An organisation with a bucket stays.
    let uri = format!("/api/v2/orgs/{south}");
    let renamed = api.call("PATCH", &uri, &root, json!({"name": "west"})).await;
    assert_eq!((renamed.0, &renamed.1["name"]), (200, &json!("west")));
}

#[tokio::test]
async fn rows_are_deleted_by_time_measurement_and_tag() {
    let api = Api::new();
    let second = 1_000_000_000_u64;
    let lines: Vec<_> = (1..=3)
        .flat_map(|time| ["a", "b"].map(|room| format!("home,room={room} v=1 {}", time * second)))
        .collect();
    let (status, body) = api.post("/api/v2/write?bucket=b", &lines.join("\n")).await;
    assert_eq!(status, 204, "{body}");
    api.post("/api/v2/write?bucket=b", "other v=1 1000000000").await;
    let delete = async |start: u64, stop: u64, predicate: &str| {
        let time = |second: u64| format!("1970-01-01T00:00:0{second}Z");
        let body = json!({"start": time(start), "stop": time(stop), "predicate": predicate});
        let (status, body) = api.call("POST", "/api/v2/delete?org=o&bucket=b", "", body).await;
        assert_eq!(status, 204, "{body}");
        let rows = api.query("b", "SELECT count(*) AS n FROM home").await;
        (rows[0]["n"].as_u64().unwrap(), api.fake.rows("b", "other"))
    };
    let predicate = r#"_measurement="home" AND room="a""#;
    assert_eq!(delete(0, 1, predicate).await, (5, vec![1]));
    // Tables without the tag have no such rows.
    assert_eq!(delete(0, 9, r#"room="a""#).await, (3, vec![1]));
    assert_eq!(delete(2, 9, "_measurement=home").await, (1, vec![1]));
    assert_eq!(delete(0, 9, "").await, (0, vec![0]));
    let wrong = json!({"start": "yesterday", "stop": "1970-01-01T00:00:00Z"});
    assert_eq!(api.call("POST", "/api/v2/delete?bucket=b", "", wrong).await.0, 400);
    let span = json!({"start": "1970-01-01T00:00:00Z", "stop": "1970-01-01T00:00:00Z"});
    assert_eq!(api.call("POST", "/api/v2/delete?bucket=no", "", span).await.0, 404);
}

#[tokio::test]
async fn databases_tables_and_tokens_are_configured_as_in_influxdb_3() {
    let api = Api::new();
    let database = "/api/v3/configure/database";
    let body = json!({"db": "d"});
    assert_eq!(api.call("POST", database, "", body.clone()).await.0, 200);
    let month = json!({"db": "d", "retention_period": "30d"});
    assert_eq!(api.call("PUT", database, "", month).await.0, 200);
    assert_eq!(api.fake.catalog().databases["d"].ttl, Some(Duration::from_secs(2_592_000)));
    let ever = json!({"db": "d", "retention_period": "none"});
    assert_eq!(api.call("PUT", database, "", ever).await.0, 200);
    assert_eq!(api.call("POST", database, "", body).await.0, 409);
    let (_, list) = api.get("/api/v3/configure/database?format=json").await;
    assert!(list.as_array().unwrap().contains(&json!({"iox::database": "d"})), "{list}");
    let fields = json!([{"name": "v", "type": "float64"}, {"name": "n", "type": "uint64"}]);
    let body = json!({"db": "d", "table": "t", "tags": ["b", "a"], "fields": fields});
    let table = "/api/v3/configure/table";
    assert_eq!(api.call("POST", table, "", body.clone()).await.0, 200);
    assert_eq!(api.call("POST", table, "", body).await.0, 409);
    assert_eq!(api.post("/api/v3/write_lp?db=d&precision=ns", "t,a=x v=1,n=2u 1").await.0, 204);
    assert_eq!(api.query("d", "SELECT a, n FROM t").await, json!([{"a": "x", "n": 2}]));
    let (status, made) = api.call("POST", "/api/v3/configure/token/admin", "", Value::Null).await;
    assert_eq!((status, &made["name"]), (201, &json!("_admin")), "{made}");
    let token = text(&made["token"]);
    assert_eq!(api.sql("d", &token, "SELECT v FROM t").await, (200, json!([{"v": 1.0}])));
    let drop = "/api/v3/configure/token?token_name=_admin";
    assert_eq!(api.call("DELETE", drop, "", Value::Null).await.0, 200);
    let permission = json!({
        "resource_type": "db", "resource_names": ["d"], "actions": ["read"]
    });
    let body = json!({"token_name": "r", "permissions": [permission], "expiry_secs": 3600});
    let (status, made) = api.call("POST", "/api/v3/configure/token", "", body).await;
    assert_eq!(status, 201, "{made}");
    let reader = text(&made["token"]);
    let count = api.sql("d", &reader, "SELECT count(*) AS n FROM t").await;
    assert_eq!(count, (200, json!([{"n": 1}])));
    assert_eq!(api.sql("d", &reader, "DELETE FROM t").await.0, 403);
    assert_eq!(
        api.call("DELETE", "/api/v3/configure/table?db=d&table=t", "", Value::Null).await.0,
        200
    );
    assert_eq!(api.call("DELETE", "/api/v3/configure/database?db=d", "", Value::Null).await.0, 200);
    assert_eq!(api.call("DELETE", "/api/v3/configure/database?db=d", "", Value::Null).await.0, 404);
}

/// A bucket with the schema of the air sensors.
async fn air_sensors(api: &Api) -> String {
    let body = json!({"name": "air", "schemaType": "explicit", "retentionRules": []});
    let (status, bucket) = api.call("POST", "/api/v2/buckets", "", body).await;
    assert_eq!((status, &bucket["schemaType"]), (201, &json!("explicit")), "{bucket}");
    let uri = format!("/api/v2/buckets/{}/schema/measurements", text(&bucket["id"]));
    let field = |name: &str| json!({"name": name, "type": "field", "dataType": "float"});
    let columns = json!([
        {"name": "time", "type": "timestamp"},
        {"name": "sensor_id", "type": "tag"},
        field("co"),
        field("humidity"),
        field("temperature"),
    ]);
    let body = json!({"name": "airSensors", "columns": columns});
    let (status, made) = api.call("POST", &uri, "", body.clone()).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["columns"].as_array().unwrap().len(), 5);
    let (status, twice) = api.call("POST", &uri, "", body).await;
    assert_eq!((status, &twice["code"]), (422, &json!("conflict")));
    uri
}

#[tokio::test]
async fn an_explicit_schema_is_enforced_line_by_line() {
    let api = Api::new();
    air_sensors(&api).await;
    let write = async |lines: &str| {
        let (status, body) = api.post("/api/v2/write?bucket=air", lines).await;
        (status.as_u16(), body["message"].as_str().unwrap_or_default().to_owned())
    };
    let good = "airSensors,sensor_id=T co=1,humidity=2,temperature=3";
    assert_eq!(write(&format!("{good} 1")).await.0, 204);
    let wrong_type = "airSensors,sensor_id=T co=1,humidity=\"x\",temperature=2";
    for (line, message) in [
        (wrong_type, "field type for 'humidity' got String but expected Float"),
        ("other v=1", "measurement \"other\" not allowed by schema"),
        ("airSensors,sensor_id=T extra=1", "field 'extra' of measurement"),
        ("airSensors,room=k co=1", "tag 'room' of measurement"),
    ] {
        let (status, text) = write(&format!("{line} 7\n{good} 8")).await;
        assert_eq!(status, 400, "{line}");
        assert!(text.contains(message), "{text}");
    }
    // The good lines are there.
    let count = api.query("air", "SELECT count(*) AS n FROM \"airSensors\"").await;
    assert_eq!(count, json!([{"n": 2}]));
    let sql = "SELECT reason, line FROM sys.rejected_points WHERE database = 'air'";
    let rejected = api.query("air", sql).await;
    assert_eq!(rejected.as_array().unwrap().len(), 4, "{rejected}");
    assert_eq!(rejected[1]["reason"], "schema");
}

#[tokio::test]
async fn columns_of_a_schema_are_added_and_never_changed() {
    let api = Api::new();
    let uri = air_sensors(&api).await;
    let (_, list) = api.get(&uri).await;
    let schema = list["measurementSchemas"][0].clone();
    let uri = format!("{uri}/{}", text(&schema["id"]));
    let mut columns = schema["columns"].as_array().unwrap().clone();
    columns.push(json!({"name": "note", "type": "field"}));
    let (status, changed) = api.call("PATCH", &uri, "", json!({"columns": columns})).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(changed["columns"].as_array().unwrap().len(), 6);
    let line = "airSensors,sensor_id=T note=\"x\" 1";
    let deadline = Instant::now() + PATIENCE;
    while api.post("/api/v2/write?bucket=air", line).await.0 != 204 {
        assert!(Instant::now() < deadline, "the column does not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    columns.retain(|column| column["name"] != "co");
    assert_eq!(api.call("PATCH", &uri, "", json!({"columns": columns})).await.0, 422);
    // Buckets with an implicit schema have none to list.
    api.post("/api/v2/write?bucket=b", "m v=1 1").await;
    let (_, list) = api.get("/api/v2/buckets?name=b").await;
    let id = text(&list["buckets"][0]["id"]);
    let (status, _) = api.get(&format!("/api/v2/buckets/{id}/schema/measurements")).await;
    assert_eq!(status, 422);
}
