// The programs of document 001, the JetStream guide of the JavaScript clients, in its order.
// Types are removed; names that the document leaves open, and ends of endless loops, are filled in.
const { connect, AckPolicy, Empty, StorageType, StringCodec } = require("nats");

async function manage(nc) {
  const jsm = await nc.jetstreamManager();
  console.log("streams:", (await jsm.streams.list().next()).length);
  const stream = "mystream";
  await jsm.streams.add({ name: stream, subjects: ["mystream.*"] });
  const js = nc.jetstream();
  for (let i = 0; i < 100; i++) await js.publish("mystream.a", Empty);
  const name = await jsm.streams.find("mystream.A");
  const si = await jsm.streams.info(name);
  console.log(name, si.state.messages);
  si.config.subjects.push("a.b");
  await jsm.streams.update(name, si.config);
  const sm = await jsm.streams.getMessage(stream, { seq: 1 });
  console.log("message", sm.seq);
  console.log("deleted", await jsm.streams.deleteMessage(stream, 5));
  console.log("purged", (await jsm.streams.purge(stream, { seq: 90 })).purged);
  console.log("purged", (await jsm.streams.purge(stream, { filter: "mystream.a", keep: 5 })).purged);
  console.log("purged", (await jsm.streams.purge(stream)).purged);
  await jsm.consumers.add(stream, { durable_name: "me", ack_policy: AckPolicy.Explicit });
  const consumers = await jsm.consumers.list(stream).next();
  consumers.forEach((ci) => console.log("consumer", ci.name));
  console.log("removed", await jsm.consumers.delete(stream, "me"));
}

async function publish(nc) {
  const jsm = await nc.jetstreamManager();
  await jsm.streams.add({ name: "a", subjects: ["a.a", "a.c"] });
  const js = nc.jetstream();
  let pa = await js.publish("a.c");
  console.log(pa.stream, pa.seq, pa.duplicate);
  await js.publish("a.c", Empty, { msgID: "a" });
  await js.publish("a.c", Empty, { expect: { lastMsgID: "a" } });
  await js.publish("a.c", Empty, { expect: { lastSequence: 3 } });
  pa = await js.publish("a.c", Empty, { expect: { streamName: "a" } });
  const buf = [];
  for (let i = 0; i < 100; i++) buf.push(js.publish("a.a", Empty));
  await Promise.all(buf);
  pa = await js.publish("a.c", Empty, { expect: { lastSubjectSequence: pa.seq } });
  console.log("last", pa.seq);
}

async function consume(nc) {
  const jsm = await nc.jetstreamManager();
  const js = nc.jetstream();
  await jsm.consumers.add("a", { durable_name: "b", ack_policy: AckPolicy.Explicit });
  const c = await js.consumers.get("a", "b");
  const m = await c.next();
  m.ack();
  console.log(`next: ${m.seq} ${m.subject}`);
  for await (const m of await c.fetch({ max_messages: 5 })) {
    console.log(`fetch: ${m.seq} ${m.subject}`);
    m.ack();
  }
  let count = 0;
  for await (const m of await c.consume({ max_messages: 20 })) {
    m.ack();
    count++;
    if (m.info.pending === 0) break;
  }
  console.log("consumed", count);
  const ordered = await js.consumers.get("a", { filterSubjects: ["a.c"] });
  console.log("ordered", (await ordered.next()).seq);
}

async function keys(nc) {
  const sc = StringCodec();
  const kv = await nc.jetstream().views.kv("testing", { history: 5 });
  await kv.create("hello.world", sc.encode("hi"));
  await kv.put("hello.world", sc.encode("world"));
  console.log(`value for get ${sc.decode((await kv.get("hello.world")).value)}`);
  for await (const key of await kv.keys()) console.log("key", key);
  for await (const e of await kv.history({ key: "hello.world" })) {
    console.log(`history: ${e.key}: ${e.operation} ${sc.decode(e.value)}`);
  }
  await kv.delete("hello.world");
  console.log("after delete", (await kv.get("hello.world")).operation);
  await kv.purge("hello.world");
  console.log("destroyed", await kv.destroy());
}

async function objects(nc) {
  const sc = StringCodec();
  const os = await nc.jetstream().views.os("testing", { storage: StorageType.File });
  console.log(`hello entry exists? ${(await os.get("hello")) !== null}`);
  const data = new ReadableStream({
    pull(controller) {
      controller.enqueue(sc.encode("hello world"));
      controller.close();
    },
  });
  const info = await os.put({ name: "hello", options: { max_chunk_size: 1 } }, data);
  console.log(`object size: ${info.size} number of chunks: ${info.chunks}`);
  const found = await os.get("hello");
  let text = "";
  for await (const chunk of found.data) text += sc.decode(chunk);
  console.log("read", text);
  (await os.list()).forEach((i) => console.log(`list: ${i.name}`));
  const final = await os.seal();
  console.log(`bucket: '${final.bucket}' sealed: ${final.sealed}`);
  console.log(`destroyed: ${await os.destroy()}`);
}

async function main() {
  const nc = await connect({ servers: process.argv[2], timeout: 60000 });
  for (const part of [manage, publish, consume, keys, objects]) await part(nc);
  await nc.close();
}

main();
