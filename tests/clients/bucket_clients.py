"""Organisations, buckets, explicit schemas, tokens and deletions with influxdb-client, influxdb3-python, plain requests and
the tools of `partita`, over TLS against a server of its own that was set up as InfluxDB 2 is.

PARTITA_BIN is the server's binary. Prints what failed, and 'N passed, M failed' at the end.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
import warnings

import influxdb_client
import influxdb_client_3
import requests
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.client.warnings import CloudOnlyWarning
from influxdb_client.rest import ApiException
from influxdb_client.service.setup_service import SetupService
from requests.adapters import HTTPAdapter

import secured
from secured import eventually, raises

# Bucket schemas are said to be of InfluxDB's cloud only.
warnings.simplefilter("ignore", CloudOnlyWarning)

TESTS = []
SERVER = None
# What the setup made: the token has all rights, and belongs to no organisation.
ROOT = None
ORG = "first org"
BUCKET = "first bucket"
PASSWORD = "a good password"
HOUR_S = 60 * 60
# Measurements that a bucket may have here; 500 unless the server is told otherwise, which would take long to make.
TABLES_MAX = 20


def test(function):
    TESTS.append(function)
    return function


def name(prefix):
    """A name nobody else has."""
    return f"{prefix}_{uuid.uuid4().hex[:10]}"


def client(token=None, org=ORG):
    return influxdb_client.InfluxDBClient(
        SERVER.url, token=token or ROOT, org=org, ssl_ca_cert=SERVER.authority)


def refused(function):
    """Status, code and message of the error of influxdb-client's call."""
    error = raises(ApiException, function)
    body = json.loads(error.body)
    assert set(body) >= {"code", "message"}, body
    return error.status, body["code"], body["message"]


def made_org(prefix="org"):
    with client() as root:
        return root.organizations_api().create_organization(name(prefix))


def made_bucket(org, schema_type="implicit", rules=(), bucket_name=None):
    with client(org=org.name) as root:
        wanted = influxdb_client.PostBucketRequest(
            org_id=org.id, name=bucket_name or name("bucket"), retention_rules=list(rules), schema_type=schema_type)
        return root.buckets_api().create_bucket(bucket=wanted)


def permission(action, bucket):
    resource = influxdb_client.PermissionResource(type="buckets", id=bucket.id, org_id=bucket.org_id)
    return influxdb_client.Permission(action=action, resource=resource)


def made_token(*permissions):
    org = permissions[0].resource.org_id
    with client() as root:
        return root.authorizations_api().create_authorization(org_id=org, permissions=list(permissions))


def write(token, bucket, lines, org=ORG, **options):
    with client(token, org) as writer, writer.write_api(write_options=SYNCHRONOUS) as api:
        return api.write(bucket, record=lines, **options)


def query(token, bucket, sql):
    """The rows of a query by Flight, as objects."""
    options = {"host": SERVER.url, "database": bucket, "token": token, "ssl_ca_cert": SERVER.authority}
    with influxdb_client_3.InfluxDBClient3(**options) as reader:
        return reader.query(sql).to_pylist()


class Elsewhere(HTTPAdapter):
    """Connections from an address of the loopback network that no other attempt had: wrong tokens are limited by it."""

    numbers = itertools.count(2)

    def init_poolmanager(self, *arguments, **options):
        super().init_poolmanager(*arguments, source_address=(f"127.0.0.{next(self.numbers)}", 0), **options)


def elsewhere():
    session = requests.Session()
    session.mount("https://", Elsewhere())
    return session


# --- setup


@test
def the_setup_is_done_once():
    with client() as root:
        service = SetupService(root.api_client)
        assert service.get_setup().allowed is False
        again = influxdb_client.OnboardingRequest(username="other", password=PASSWORD, org="o", bucket="b")
        status, code, message = refused(lambda: service.post_setup(again))
        assert (status, code) == (422, "conflict") and "already been completed" in message, message
    assert SERVER.request("GET", "/api/v2/setup").json() == {"allowed": False}
    for user in ("owner", "partita"):
        with SERVER.connect(user=user, password=PASSWORD) as c:
            assert c.info.parameter_status("is_superuser") == "on", user


@test
def the_setup_made_an_organisation_a_bucket_and_a_token():
    with client() as root:
        org = root.organizations_api().find_organizations(org=ORG)[0]
        bucket = root.buckets_api().find_bucket_by_name(BUCKET)
        assert bucket.org_id == org.id, bucket
        assert [rule.every_seconds for rule in bucket.retention_rules] == [24 * HOUR_S], bucket
    now = time.time_ns()
    write(ROOT, BUCKET, f"m,t=a v=1 {now}")
    assert query(ROOT, BUCKET, "SELECT t, v FROM m") == [{"t": "a", "v": 1.0}]


# --- organisations and buckets


@test
def organisations_are_made_renamed_and_dropped():
    with client() as root:
        api = root.organizations_api()
        org = made_org()
        assert len(org.id) == 16 and api.find_organization(org.id).name == org.name
        assert refused(lambda: api.create_organization(org.name))[:2] == (422, "conflict")
        org.name = name("renamed")
        assert api.update_organization(org).name == org.name
        assert [found.id for found in api.find_organizations(org=org.name)] == [org.id]
        assert refused(lambda: api.find_organizations(org=name("none")))[:2] == (404, "not found")
        assert refused(lambda: api.find_organization("f" * 16))[:2] == (404, "not found")
        bucket = made_bucket(org)
        assert refused(lambda: api.delete_organization(org.id))[:2] == (422, "conflict")
        root.buckets_api().delete_bucket(bucket)
        api.delete_organization(org.id)
        assert refused(lambda: api.find_organization(org.id))[0] == 404


@test
def buckets_have_one_retention_of_an_hour_at_least():
    org = made_org()
    rule = influxdb_client.BucketRetentionRules
    with client(org=org.name) as root:
        api = root.buckets_api()
        bucket = api.create_bucket(bucket_name=name("b"), retention_rules=rule(type="expire", every_seconds=HOUR_S))
        assert bucket.org_id == org.id and bucket.schema_type == "implicit", bucket
        for rules in ([], rule(type="expire", every_seconds=0)):
            forever = api.create_bucket(bucket_name=name("b"), retention_rules=rules)
            assert all(kept.every_seconds == 0 for kept in forever.retention_rules), forever
        for rules in ([rule(type="expire", every_seconds=HOUR_S - 1)],
                      [rule(type="expire", every_seconds=HOUR_S), rule(type="expire", every_seconds=2 * HOUR_S)]):
            status, _, message = refused(lambda: api.create_bucket(bucket_name=name("b"), retention_rules=rules))
            assert status == 422 and "retention" in message, message
        assert refused(lambda: api.create_bucket(bucket_name=bucket.name))[:2] == (422, "conflict")
        bucket.retention_rules = [rule(type="expire", every_seconds=2 * HOUR_S)]
        assert api.update_bucket(bucket).retention_rules[0].every_seconds == 2 * HOUR_S
        bucket.name = name("renamed")
        assert refused(lambda: api.update_bucket(bucket))[0] == 422


@test
def buckets_are_listed_page_by_page():
    org = made_org()
    with client(org=org.name) as root:
        api = root.buckets_api()
        wanted = [api.create_bucket(bucket_name=name("b")).id for _ in range(5)]
        assert [found.id for found in api.find_buckets_iter(org=org.name, limit=2)] == wanted
        path, found = f"/api/v2/buckets?org={org.name}&limit=2&descending=true&after={wanted[4]}", []
        while path:
            page = SERVER.request("GET", path, ROOT).json()
            found += [one["id"] for one in page["buckets"]]
            path = page["links"].get("next")
        assert found == wanted[3::-1], found
        page = api.find_buckets(org_id=org.id, limit=2, offset=2).buckets
        assert [found.id for found in page] == wanted[2:4]
        page = api.find_buckets(org=org.name, after=wanted[2]).buckets
        assert [found.id for found in page] == wanted[3:]
        assert api.find_bucket_by_id(wanted[0]).id == wanted[0]
        assert refused(lambda: api.find_bucket_by_id("f" * 16))[:2] == (404, "not found")
        for number in wanted:
            api.delete_bucket(number)
        assert api.find_buckets(org=org.name).buckets == []


@test
def points_outside_the_retention_are_rejected_and_never_seen():
    org = made_org()
    rule = influxdb_client.BucketRetentionRules(type="expire", every_seconds=HOUR_S)
    bucket = made_bucket(org, rules=[rule])
    now = time.time_ns()
    old = now - 2 * HOUR_S * 10**9
    status, code, message = refused(lambda: write(ROOT, bucket.name, f"m v=1 {old}"))
    assert (status, code) == (422, "unprocessable entity"), (status, code)
    assert "points beyond retention policy" in message, message
    status, code, message = refused(lambda: write(ROOT, bucket.name, [f"m v=1 {old}", f"m v=2 {now}"]))
    assert (status, code) == (400, "invalid") and "line 1" in message, message
    # By the id of the bucket as well.
    write(ROOT, bucket.id, f"m v=3 {now + 1}")
    assert query(ROOT, bucket.name, "SELECT v FROM m ORDER BY time") == [{"v": 2.0}, {"v": 3.0}]
    # Rows become invisible at once when the retention gets shorter.
    with client() as root:
        bucket.retention_rules = []
        root.buckets_api().update_bucket(bucket)
        write(ROOT, bucket.name, f"m v=1 {old}")
        assert len(query(ROOT, bucket.name, "SELECT v FROM m")) == 3
        bucket.retention_rules = [rule]
        root.buckets_api().update_bucket(bucket)
    eventually(lambda: len(query(ROOT, bucket.name, "SELECT v FROM m")) == 2)


# --- explicit schemas


def columns(*triples):
    return [influxdb_client.MeasurementSchemaColumn(*triple) for triple in triples]


SENSORS = [("time", "timestamp", None), ("sensor_id", "tag", None), ("co", "field", "float"),
           ("humidity", "field", "float"), ("temperature", "field", "float")]


@test
def explicit_schemas_are_made_listed_and_extended():
    bucket = made_bucket(made_org(), "explicit")
    assert bucket.schema_type == "explicit", bucket
    with client() as root:
        api = influxdb_client.BucketSchemasService(root.api_client)
        wanted = influxdb_client.MeasurementSchemaCreateRequest(name="airSensors", columns=columns(*SENSORS))
        schema = api.create_measurement_schema(bucket.id, wanted)
        assert (schema.name, schema.bucket_id) == ("airSensors", bucket.id), schema
        assert [column.name for column in schema.columns] == ["sensor_id", "time", "co", "humidity", "temperature"]
        assert refused(lambda: api.create_measurement_schema(bucket.id, wanted))[:2] == (422, "conflict")
        listed = api.get_measurement_schemas(bucket.id).measurement_schemas
        assert [found.id for found in listed] == [schema.id], listed
        assert api.get_measurement_schemas(bucket.id, name="other").measurement_schemas == []
        assert api.get_measurement_schema(bucket.id, schema.id).name == "airSensors"

        def change(*triples):
            body = influxdb_client.MeasurementSchemaUpdateRequest(columns=columns(*triples))
            return api.update_measurement_schema(bucket.id, schema.id, body)

        more = change(*SENSORS, ("floor", "tag", None), ("count", "field", "integer"))
        assert {"floor", "count"} <= {column.name for column in more.columns}, more
        # Columns are neither dropped nor changed.
        assert refused(lambda: change(*SENSORS[:-1]))[0] == 422
        extended = [*SENSORS, ("floor", "tag", None), ("count", "field", "float")]
        assert refused(lambda: change(*extended))[0] == 422
        for wrong in (
            [("time", "timestamp", None)],
            [("v", "field", "float")],
            [*SENSORS, ("_v", "field", "float")],
            [*SENSORS, ("1v", "field", "float")],
            [*SENSORS, ("v\"", "field", "float")],
            [*SENSORS, ("v" * 129, "field", "float")],
            [*SENSORS, ("co", "tag", None)],
        ):
            body = influxdb_client.MeasurementSchemaCreateRequest(name="wrong", columns=columns(*wrong))
            assert refused(lambda: api.create_measurement_schema(bucket.id, body))[0] == 422, wrong
        implicit = root.buckets_api().find_bucket_by_name(BUCKET)
        assert refused(lambda: api.create_measurement_schema(implicit.id, wanted))[0] == 422
    for path, body in (("", {"schemaType": "implicit"}), (f"/schema/measurements/{'f' * 16}", {"columns": []})):
        response = SERVER.request("PATCH", f"/api/v2/buckets/{bucket.id}{path}", ROOT, json=body)
        assert response.status_code in (404, 422), response.text


@test
def an_explicit_schema_keeps_bad_lines_out():
    bucket = made_bucket(made_org(), "explicit")
    with client() as root:
        wanted = influxdb_client.MeasurementSchemaCreateRequest(name="airSensors", columns=columns(*SENSORS))
        influxdb_client.BucketSchemasService(root.api_client).create_measurement_schema(bucket.id, wanted)
    good = "airSensors,sensor_id=T co=1,humidity=2,temperature=3"
    for line, text in (
        ("airSensors,sensor_id=T co=1,humidity=\"x\",temperature=2 1",
         "field type mismatch with schema: field type for 'humidity' got String but expected Float"),
        ("airSensors,sensor_id=T co=1i 1", "got Integer but expected Float"),
        ("airSensors,sensor_id=T smoke=1 1", "field 'smoke' of measurement \"airSensors\" not allowed by schema"),
        ("airSensors,room=k co=1 1", "tag 'room' of measurement \"airSensors\" not allowed by schema"),
        ("water level=1 1", "measurement \"water\" not allowed by schema"),
    ):
        number = 1000 + len(line)
        status, code, message = refused(lambda: write(ROOT, bucket.name, [line, f"{good} {number}"]))
        assert (status, code) == (400, "invalid") and text in message and "line 1" in message, message
        assert query(ROOT, bucket.name, "SELECT count(*) AS n FROM \"airSensors\" "
                     f"WHERE time = arrow_cast({number}, 'Timestamp(Nanosecond, None)')") == [{"n": 1}]
        kept = SERVER.rows(ROOT, f"SELECT message FROM sys.rejected_points WHERE database = '{bucket.name}'")
        assert any(text in row["message"] for row in kept), kept
    tables = SERVER.rows(ROOT, f"SHOW TABLES FROM {bucket.name}")
    assert len(tables) == 1, tables


# --- tokens


@test
def tokens_read_or_write_single_buckets():
    org = made_org()
    first, second = made_bucket(org), made_bucket(org)
    for bucket in (first, second):
        write(ROOT, bucket.name, "home,room=k v=1 1")
    reader, writer = made_token(permission("read", first)), made_token(permission("write", first))
    both = made_token(permission("read", first), permission("read", second))
    assert query(reader.token, first.name, "SELECT v FROM home") == [{"v": 1.0}]
    write(writer.token, first.name, "home,room=k v=2 2", org=org.name)
    assert query(reader.token, first.name, "SELECT sum(v) AS s FROM home") == [{"s": 3.0}]
    # Another organisation's name in `org` is ignored: the token tells the organisation.
    write(writer.token, first.name, "home,room=k v=3 3", org=name("elsewhere"))
    assert refused(lambda: write(reader.token, first.name, "home,room=k v=4 4"))[:2] == (403, "forbidden")
    for token, bucket in ((reader, second), (writer, second), (writer, BUCKET)):
        target = getattr(bucket, "name", bucket)
        status, code, _ = refused(lambda: write(token.token, target, "home,room=k v=4 4"))
        assert (status, code) == (404, "not found"), (status, code)
    join = f"SELECT max(v) AS m FROM (SELECT v FROM {first.name}.home UNION ALL SELECT v FROM {second.name}.home) t"
    assert query(both.token, first.name, join) == [{"m": 3.0}]
    refusal = raises(Exception, lambda: query(reader.token, first.name, join))
    assert second.name in str(refusal) and "does not exist" in str(refusal), refusal
    raises(Exception, lambda: query(writer.token, first.name, "SELECT v FROM home"))
    listed = {found.id for found in listed_tokens(org)}
    assert listed == {reader.id, writer.id, both.id}, listed
    # One with a part of the rights makes no tokens, and sees none.
    with client(reader.token, org.name) as limited:
        api = limited.authorizations_api()
        more = [permission("read", first)]
        assert refused(lambda: api.create_authorization(org_id=org.id, permissions=more))[0] == 403
        assert api.find_authorizations() == []
        assert refused(lambda: api.find_authorization_by_id(writer.id))[0] == 404
        assert [found.id for found in limited.buckets_api().find_buckets().buckets] == [first.id]


def listed_tokens(org):
    with client() as root:
        return root.authorizations_api().find_authorizations_by_org(org)


@test
def tokens_are_switched_off_and_dropped():
    bucket = made_bucket(made_org())
    token = made_token(permission("read", bucket), permission("write", bucket))
    with client() as root:
        api = root.authorizations_api()
        found = api.find_authorization_by_id(token.id)
        # The text is told once.
        assert found.token is None and found.status == "active", found
        assert sorted(given.action for given in found.permissions) == ["read", "write"], found
        assert found.permissions[0].resource.id == bucket.id, found
        attempt = lambda: SERVER.request(
            "POST", f"/api/v2/write?bucket={bucket.name}", token.token, session=session, data="m v=1 1")
        for status, code in (("inactive", 401), ("active", 204)):
            session = elsewhere()
            token.status = status
            assert api.update_authorization(token).status == status
            eventually(lambda: attempt().status_code == code)
        session = elsewhere()
        api.delete_authorization(token)
        eventually(lambda: attempt().status_code == 401)
        assert refused(lambda: api.find_authorization_by_id(token.id))[:2] == (404, "not found")


@test
def permissions_that_cannot_be_given_are_refused():
    org = made_org()
    bucket = made_bucket(org)
    with client() as root:
        api = root.authorizations_api()

        def make(*permissions):
            return refused(lambda: api.create_authorization(org_id=org.id, permissions=list(permissions)))

        def of(kind, **options):
            resource = influxdb_client.PermissionResource(type=kind, **options)
            return influxdb_client.Permission(action="read", resource=resource)

        assert make(of("buckets", id="f" * 16))[:2] == (404, "not found")
        assert make()[0] in (400, 422)
        status, _, message = make(of("dashboards"))
        assert status == 422 and "dashboards" in message, message
        # An organisation that the rest of the token is not of.
        assert make(of("buckets", id=bucket.id, org_id=made_org().id))[0] == 422


@test
def a_permission_to_read_may_name_rows():
    org = made_org()
    bucket = made_bucket(org)
    write(ROOT, bucket.name, [f"home,customer=c{number} v={number} 1" for number in range(4)])

    def make(rows, action="read", **options):
        resource = {"type": "buckets", "id": bucket.id, "rows": rows, **options}
        body = {"orgID": org.id, "permissions": [{"action": action, "resource": resource}]}
        return SERVER.request("POST", "/api/v2/authorizations", ROOT, json=body)

    for rows, wanted in (({"customer": "c1"}, [1.0]), ({"customer": ["c1", "c2"]}, [1.0, 2.0]), ({"customer": ["none"]}, []),
                         ({"customer": ["c1"], "device": "d"}, None)):
        made = make(rows)
        assert made.status_code == 201, made.text
        text, number = made.json()["token"], made.json()["id"]
        if wanted is None:
            # No row of a table whose key lacks one of the columns.
            raises(Exception, lambda: query(text, bucket.name, "SELECT v FROM home"))
        else:
            assert [row["v"] for row in query(text, bucket.name, "SELECT v FROM home ORDER BY v")] == wanted
        found = SERVER.request("GET", f"/api/v2/authorizations/{number}", ROOT).json()
        kept = found["permissions"][0]["resource"]["rows"]
        assert kept == {column: values if isinstance(values, list) else [values] for column, values in rows.items()}, found
    for wrong in (make({"customer": "c1"}, "write"), make({"customer": 1.5}), make({"customer": "c1"}, id=None), make({})):
        assert wrong.status_code in (400, 422) and wrong.json()["message"], wrong.text


@test
def tokens_of_influxdb_3_expire():
    database = name("db")
    assert SERVER.request("POST", "/api/v3/configure/database", ROOT, json={"db": database}).status_code == 200
    again = SERVER.request("POST", "/api/v3/configure/database", ROOT, json={"db": database})
    assert again.status_code == 409, again.text
    table = {"db": database, "table": "home", "tags": ["room"], "fields": [{"name": "t", "type": "float64"}]}
    assert SERVER.request("POST", "/api/v3/configure/table", ROOT, json=table).status_code == 200
    assert SERVER.request("POST", "/api/v3/configure/table", ROOT, json=table).status_code == 409
    part = {"resource_type": "db", "resource_names": [database], "actions": ["read", "write"]}
    wanted = {"token_name": name("token"), "permissions": [part], "expiry_secs": 3600}
    made = SERVER.request("POST", "/api/v3/configure/token", ROOT, json=wanted)
    assert made.status_code == 201, made.text
    write(made.json()["token"], database, "home,room=k t=1 1")
    assert query(made.json()["token"], database, "SELECT t FROM home") == [{"t": 1.0}]
    assert SERVER.request("POST", "/api/v3/configure/token", ROOT, json=wanted).status_code == 409
    short = {**wanted, "token_name": name("token"), "expiry_secs": 1}
    text = SERVER.request("POST", "/api/v3/configure/token", ROOT, json=short).json()["token"]
    session = elsewhere()
    attempt = lambda: SERVER.request(
        "POST", f"/api/v3/write_lp?db={database}", text, session=session, data="home,room=k t=2 2")
    eventually(lambda: attempt().status_code == 401)
    dropped = SERVER.request("DELETE", f"/api/v3/configure/token?token_name={wanted['token_name']}", ROOT)
    assert dropped.status_code == 200, dropped.text
    session, text = elsewhere(), made.json()["token"]
    eventually(lambda: attempt().status_code == 401)
    for path in (f"/table?db={database}&table=home", f"/database?db={database}"):
        assert SERVER.request("DELETE", f"/api/v3/configure{path}", ROOT).status_code == 200
        assert SERVER.request("DELETE", f"/api/v3/configure{path}", ROOT).status_code == 404


@test
def each_scheme_of_credentials_is_taken():
    bucket = made_bucket(made_org())
    text = made_token(permission("read", bucket), permission("write", bucket)).token
    for headers in ({"Authorization": f"Token {text}"}, {"Authorization": f"Bearer {text}"}):
        response = SERVER.request(
            "POST", f"/api/v2/write?bucket={bucket.name}", headers=headers, data="m v=1 1")
        assert response.status_code == 204, response.text
    path = f"/api/v3/query_sql?db={bucket.name}&q=SELECT+v+FROM+m"
    assert SERVER.request("GET", path, auth=("anybody", text)).json() == [{"v": 1.0}]
    parameters = {"db": bucket.name, "u": "anybody", "p": text}
    assert SERVER.request("POST", "/write", params=parameters, data="m v=2 2").status_code == 204


@test
def a_missing_or_bad_token_is_told_in_the_form_of_each_path():
    unauthenticated = {"error": "the request was not authenticated"}
    for method, path in (
        ("POST", f"/api/v2/write?bucket={BUCKET}"),
        ("GET", "/api/v2/buckets"),
        ("POST", f"/api/v2/delete?bucket={BUCKET}"),
        ("POST", f"/write?db={BUCKET}"),
        ("POST", f"/api/v3/write_lp?db={BUCKET}"),
        ("GET", f"/api/v3/query_sql?db={BUCKET}&q=SELECT+1"),
        ("GET", "/api/v3/configure/database"),
    ):
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Token wrong"}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Digest wrong"}, 400),
            ({"Authorization": "Basic !"}, 400),
        ):
            response = SERVER.request(method, path, session=elsewhere(), headers=headers, data="m v=1 1")
            context = (method, path, headers, response.status_code, response.text)
            assert response.status_code == status, context
            body = response.json()
            if path.startswith("/api/v2/"):
                assert body["code"] == {400: "invalid", 401: "unauthorized"}[status], context
            elif status == 401 and path.startswith("/api/v3/"):
                assert body == unauthenticated, context
            else:
                assert body["error"], context
            assert status == 400 or response.headers["WWW-Authenticate"], context
            assert "wrong" not in response.text, context
    for path in ("/ping", "/health", "/ready"):
        assert SERVER.request("GET", path).status_code in (200, 204), path


# --- deletions


@test
def rows_are_deleted_by_time_measurement_and_tags():
    org = made_org()
    bucket = made_bucket(org)
    rooms = ["a", "b", "c"]
    lines = [f"{table},room={room} v={at} {at * 10**9}" for table in ("home", "shed") for room in rooms for at in (1, 2, 3)]
    write(ROOT, bucket.name, lines)
    writer, reader = made_token(permission("write", bucket)), made_token(permission("read", bucket))
    left = lambda: {
        table: query(reader.token, bucket.name, f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in ("home", "shed")
    }

    def delete(predicate, token=writer, target=bucket.name, first=0, last=9):
        with client(token.token, org.name) as deleting:
            deleting.delete_api().delete(
                f"1970-01-01T00:00:{first:02}Z", f"1970-01-01T00:00:{last:02}Z", predicate, target, org.name)

    for predicate in ("room=", "room=a OR room=b", "_value=1", "_measurement=home AND _measurement=shed"):
        assert refused(lambda: delete(predicate))[:2] == (400, "invalid"), predicate
    assert refused(lambda: delete("_measurement=home", token=reader))[:2] == (403, "forbidden")
    assert refused(lambda: delete("_measurement=home", target=BUCKET))[:2] == (404, "not found")
    assert left() == {"home": 9, "shed": 9}
    delete("_measurement=\"home\" AND room=\"a\"")
    assert left() == {"home": 6, "shed": 9}
    delete("room='b'", first=2, last=2)
    assert left() == {"home": 5, "shed": 8}
    delete("_measurement=\"nothing\"")
    delete("floor=\"1\"")
    assert left() == {"home": 5, "shed": 8}
    delete("", first=3, last=3)
    assert left() == {"home": 3, "shed": 5}
    delete("", target=bucket.id)
    assert left() == {"home": 0, "shed": 0}


# --- limits


@test
def measurements_have_a_limit_of_columns_and_buckets_one_of_measurements():
    bucket = made_bucket(made_org())
    fields = ",".join(f"f{number}=1" for number in range(199))
    write(ROOT, bucket.name, f"wide {fields} 1")
    status, _, message = refused(lambda: write(ROOT, bucket.name, "wide f0=2,more=1 2"))
    assert 400 <= status < 500 and "200" in message, message
    assert query(ROOT, bucket.name, "SELECT count(*) AS n FROM wide") == [{"n": 1}]
    more = [f"m{number} v=1 1" for number in range(TABLES_MAX - 1)]
    write(ROOT, bucket.name, more)
    status, _, message = refused(lambda: write(ROOT, bucket.name, "more v=1 1"))
    assert 400 <= status < 500 and str(TABLES_MAX) in message, message
    # Lines of measurements that there are are stored, beside others too.
    write(ROOT, bucket.name, "m0 v=2 2")
    status, code, message = refused(lambda: write(ROOT, bucket.name, ["more v=1 1", "m0 v=3 3"]))
    assert (status, code) == (400, "invalid") and "line 1" in message and str(TABLES_MAX) in message, message
    assert query(ROOT, bucket.name, "SELECT count(*) AS n FROM m0") == [{"n": 3}]


@test
def the_series_of_an_organisation_are_counted_and_limited():
    # I2-07: 5 customers x 5 devices x 1 field.
    org = made_org()
    bucket = made_bucket(org)
    changed = SERVER.request("PATCH", f"/api/v2/orgs/{org.id}", ROOT, json={"seriesMax": 25})
    assert changed.status_code == 200 and changed.json()["seriesMax"] == 25, changed.text
    lines = [f"iot,customer_id=c{c},device_id=c{c}d{d} v=1 1" for c in range(5) for d in range(5)]
    write(ROOT, bucket.name, lines)
    path = f"/api/v2/write?bucket={bucket.name}"
    refusal = SERVER.request("POST", path, ROOT, data="iot,customer_id=c6,device_id=c6d1 v=1 1")
    assert refusal.status_code == 429 and "Retry-After" not in refusal.headers, (refusal.headers, refusal.text)
    write(ROOT, bucket.name, [line.replace("v=1 1", "v=2 2") for line in lines])
    rows = query(ROOT, bucket.name, "SELECT count(*) AS n, count(DISTINCT customer_id) AS c FROM iot")
    assert rows == [{"n": 50, "c": 5}], rows


@test
def series_are_exact_and_a_dependent_tag_adds_none():
    bucket = made_bucket(made_org())
    # The lines of InfluxDB's book, with times.
    pair = ['tag1="tagvalue1",tag2="tagvalue3" field1=1i,field2=1,field3="a"',
            'tag1="tagvalue2",tag2="tagvalue4"  field1=2i,field2=2,field3="b"']
    write(ROOT, bucket.name, [f"measurement1,{pair[at % 2]} {at + 1}" for at in range(4)])
    columns_shown = "series, estimate, reduced_estimate, dependent_tags, exact"
    row = SERVER.rows(ROOT, f"SELECT {columns_shown} FROM sys.series WHERE database = '{bucket.name}'")[0]
    assert (row["series"], row["estimate"], row["reduced_estimate"], row["exact"]) == (6, 12, 6, True), row
    assert "<-" in row["dependent_tags"], row
    shown = SERVER.rows(ROOT, f"SHOW SERIES CARDINALITY ON {bucket.name}")
    counted = SERVER.rows(ROOT, f"SHOW SERIES CARDINALITY EXACT ON {bucket.name}")
    assert all(6 in rows[0].values() for rows in (shown, counted)), (shown, counted)


# --- tasks


def coming(seconds=60):
    """Lines of two hosts for each half of the seconds that come: one is hot."""
    start = time.time_ns()
    return [f"cpu,host={host} temp={temp + number % 10} {start + number * 500_000_000}"
            for number in range(2 * seconds) for host, temp in (("cool", 60), ("hot", 85))]


@test
def a_task_downsamples_a_bucket():
    bucket = made_bucket(made_org())
    write(ROOT, bucket.name, coming())
    with SERVER.connect(user="partita", password=PASSWORD, dbname=bucket.name) as c:
        c.execute("CREATE TABLE means (host STRING, time TIMESTAMP(9) TIME INDEX, mean DOUBLE, PRIMARY KEY (host))")
        c.execute("CREATE TASK downsample SCHEDULE 'every 1s' AS INSERT INTO means SELECT host, $start, avg(temp) FROM cpu "
                  "WHERE time >= $start AND time < $stop GROUP BY host")
        eventually(lambda: c.execute("SELECT count(*) FROM means").fetchone()[0] >= 4)
        c.execute("ALTER TASK downsample DISABLE")
        rows, right = c.execute(
            "SELECT count(*), count(*) FILTER (WHERE abs(c.mean - m.mean) < 0.001) FROM means m LEFT JOIN ("
            "SELECT host, date_bin(INTERVAL '1 second', time) AS time, avg(temp) AS mean FROM cpu GROUP BY 1, 2"
            ") c ON c.host = m.host AND c.time = m.time").fetchone()
        assert rows == right >= 4, (rows, right)
        c.execute("DROP TASK downsample")


@test
def an_edge_pushes_only_what_a_condition_names():
    bucket = made_bucket(made_org())
    token = made_token(permission("write", bucket)).token
    with tempfile.TemporaryDirectory() as folder:
        edge = secured.Server(folder, "--task-ca", SERVER.authority)
        try:
            with edge.connect(user="partita", password=None) as c:
                response = edge.request("POST", "/api/v2/write?bucket=public", data="\n".join(coming()))
                assert response.status_code == 204, response.text
                address = f"{SERVER.url}/api/v2/write?org=acme&bucket={bucket.name}"
                c.execute(f"CREATE TASK push SCHEDULE 'every 1s' INTO URL '{address}' TOKEN '{token}' MEASUREMENT hot "
                          "TAGS (host) AS SELECT host, time, temp FROM cpu WHERE time >= $start AND time < $stop AND temp > 80")

                def arrived():
                    rows = SERVER.rows(ROOT, f"SHOW TABLES FROM {bucket.name}")
                    return rows and SERVER.rows(ROOT, "SELECT count(*) AS n FROM hot", bucket.name)[0]["n"] >= 4

                eventually(arrived)
                shown = str([c.execute(sql).fetchall() for sql in (
                    "SHOW TASKS", "SELECT * FROM sys.tasks", "SELECT * FROM sys.task_runs", "SELECT * FROM sys.query_log",
                    "SELECT * FROM sys.audit")])
                assert "push" in shown and token not in shown, shown
        finally:
            edge.stop()
    rows = query(ROOT, bucket.name, "SELECT host, min(temp) AS t FROM hot GROUP BY host")
    assert [row["host"] for row in rows] == ["hot"] and rows[0]["t"] > 80, rows


# --- the tools


def partita(*arguments, status=0):
    """Output of a command, or its error when it has to fail."""
    environment = {**os.environ, "PARTITA_HTTP": SERVER.url, "PARTITA_TLS_CA": SERVER.authority,
                   "PARTITA_USER": "owner", "PARTITA_PASSWORD": PASSWORD}
    done = subprocess.run(
        [secured.BINARY, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) == (status == 0), (arguments, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def table(output):
    """Rows of a list, by the names of the header."""
    header, *lines = output.splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


# That of InfluxDB's book, as it is.
SCHEMA_CSV = """name,type,data_type
time,timestamp,
sensor_id,tag,
co,field,float
humidity,field,float
temperature,field,float
"""


def schema_files(folder):
    """The same columns in every format, with both spellings of the data type."""
    for spelling in ("data_type", "dataType"):
        objects = [{"name": column, "type": kind, **({spelling: data_type} if data_type else {})}
                   for column, kind, data_type in SENSORS]
        texts = {"csv": SCHEMA_CSV.replace("data_type", spelling), "json": json.dumps(objects, indent=1),
                 "ndjson": "".join(f"{json.dumps(one)}\n" for one in objects)}
        for ending, text in texts.items():
            path = os.path.join(folder, f"{spelling}.{ending}")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            yield path


@test
def the_tools_make_an_explicit_bucket_and_its_schemas():
    org, bucket = name("org"), f"Air sensor sample dataset {name('b')}"
    made = table(partita("org", "create", "--name", org, "--profile", "free"))
    assert [(row["name"], row["profile"]) for row in made] == [(org, "free")], made
    assert org in {row["name"] for row in table(partita("org", "list"))}
    assert "already exists" in partita("org", "create", "--name", org, status=1)
    create = ("bucket", "create", "--name", bucket, "--org", org, "--schema-type", "explicit", "--retention", "30d")
    row = table(partita(*create))[0]
    assert (row["name"], row["orgID"], row["schemaType"]) == (bucket, made[0]["id"], "explicit"), row
    assert json.loads(row["retentionRules"]) == [{"type": "expire", "everySeconds": 30 * 24 * HOUR_S}], row
    assert "already exists" in partita(*create, status=1)
    assert "hour" in partita("bucket", "create", "--name", name("b"), "--retention", "10m", status=1)
    assert [found["id"] for found in table(partita("bucket", "list", "--org", org))] == [row["id"]]

    expected = [{key: value for key, value in zip(("name", "type", "dataType"), column) if value} for column in SENSORS]
    order = lambda columns: sorted(columns, key=lambda column: column["name"])
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for number, path in enumerate(schema_files(folder)):
            names.append(f"airSensors{number}")
            schema = ("bucket-schema", "create", "--bucket", bucket, "--name", names[-1], "--columns-file", path)
            shown = table(partita(*schema))[0]
            assert shown["name"] == names[-1] and order(json.loads(shown["columns"])) == order(expected), (path, shown)
            assert "already exists" in partita(*schema, status=1)
        assert [shown["name"] for shown in table(partita("bucket-schema", "list", "--bucket", bucket))] == names
        for file_name, text, options, problem in (
            ("a.txt", SCHEMA_CSV, (), "--columns-format"),
            ("b.csv", "name,kind\ntime,timestamp\n", (), "unknown header"),
            ("c.csv", "name,type\ntime,timestamp\n", (), "a field"),
            ("d.json", "{", (), "d.json"),
            ("e.csv", SCHEMA_CSV.replace("float", "decimal"), (), "line 4: unknown dataType \"decimal\""),
        ):
            path = os.path.join(folder, file_name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            schema = ("bucket-schema", "create", "--bucket", bucket, "--name", "wrong", "--columns-file", path, *options)
            assert problem in partita(*schema, status=1), (file_name, problem)
        path = os.path.join(folder, "a.txt")
        schema = ("--bucket", bucket, "--name", "named", "--columns-file", path, "--columns-format", "csv")
        partita("bucket-schema", "create", *schema)
        missing = ("bucket-schema", "list", "--bucket", name("none"))
        assert "no bucket is named" in partita(*missing, status=1)

    rights = ("--org", org, "--description", "sensors", "--read-bucket", bucket, "--write-bucket", row["id"])
    token = table(partita("auth", "create", *rights))[0]
    now = time.time_ns()
    write(token["token"], bucket, f"airSensors0,sensor_id=T co=1,humidity=2,temperature=3 {now}", org)
    status, _, message = refused(lambda: write(token["token"], bucket, f"other v=1 {now}", org))
    assert status == 400 and "not allowed by schema" in message, message
    assert query(token["token"], bucket, "SELECT co FROM \"airSensors0\"") == [{"co": 1.0}]
    listed = partita("auth", "list")
    assert token["token"] not in listed
    shown = [found for found in table(listed) if found["id"] == token["id"]]
    assert [found["description"] for found in shown] == ["sensors"], listed
    assert "needs a right" in partita("auth", "create", status=1)
    partita("auth", "delete", "--id", token["id"])
    assert token["id"] not in partita("auth", "list")
    partita("bucket", "delete", "--name", bucket)
    assert "no bucket is named" in partita("bucket", "delete", "--name", bucket, status=1)


def prepare(server):
    global SERVER, ROOT
    SERVER = server
    with influxdb_client.InfluxDBClient(server.url, token="", org="", ssl_ca_cert=server.authority) as anybody:
        service = SetupService(anybody.api_client)
        assert service.get_setup().allowed is True
        request = influxdb_client.OnboardingRequest(
            username="owner", password=PASSWORD, org=ORG, bucket=BUCKET, retention_period_seconds=24 * HOUR_S)
        made = service.post_setup(request)
    assert (made.user.name, made.org.name, made.bucket.name) == ("owner", ORG, BUCKET), made
    ROOT = made.auth.token


if __name__ == "__main__":
    sys.exit(secured.main(TESTS, prepare, "--tables-per-database", str(TABLES_MAX)))
