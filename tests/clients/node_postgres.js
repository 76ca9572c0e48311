// node-postgres against a running server: arrays as parameters, which it sends as text of no declared type.
// Arguments: host, port, user, database. Ends with an error at the first answer that is wrong.
const assert = require('assert');
const { Client } = require('pg');

const [host, port, user, database] = process.argv.slice(2);

async function main() {
  const client = new Client({ host, port: Number(port), user, database });
  await client.connect();
  const table = `node_${process.pid}_${Date.now()}`;
  await client.query(`CREATE TABLE ${table} (id INT PRIMARY KEY, s TEXT, tz TIMESTAMPTZ)`);
  const noon = new Date('2024-07-01T12:00:00Z');
  for (const id of [1, 2, 3]) {
    await client.query(`INSERT INTO ${table} VALUES ($1, $2, $3)`, [id, `s${id}`, noon]);
  }
  const ids = async (sql, values) => (await client.query(sql, values)).rows.map((row) => row.id);
  assert.deepStrictEqual(await ids(`SELECT id FROM ${table} WHERE id = ANY($1) ORDER BY id`, [[1, 3, 77]]), [1, 3]);
  assert.deepStrictEqual(await ids(`SELECT id FROM ${table} WHERE id = ANY($1::int[]) ORDER BY id`, [[2]]), [2]);
  assert.deepStrictEqual(await ids(`SELECT id FROM ${table} WHERE s = ANY($1) ORDER BY id`, [['s1', "it's"]]), [1]);
  assert.deepStrictEqual(await ids(`SELECT id FROM ${table} WHERE s = ANY($1)`, [[]]), []);
  const one = (await client.query('SELECT $1::bigint AS n, $2::text AS t', ['7', 'x'])).rows[0];
  assert.deepStrictEqual({ ...one }, { n: '7', t: 'x' });
  const read = (await client.query(`SELECT tz FROM ${table} WHERE id = 1`)).rows[0].tz;
  assert.strictEqual(read.getTime(), noon.getTime());
  await client.query(`DROP TABLE ${table}`);
  await client.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
