'use strict';
// WebSocket over HTTP/2 of Node: client_http2.js URL SESSIONS. Ten sessions share a connection.
// Prints `ready`, and the events at SIGTERM.

const crypto = require('crypto');
const http2 = require('http2');

const [url, sessions] = [new URL(process.argv[2]), Number(process.argv[3])];
const PER_CONNECTION = 10;
const counts = { sessions, messages: 0, wrong: 0, closed: 0, goaways: 0 };
let opened = 0;
let stopping = false;

// A text frame with a mask, as clients send it (RFC 6455 section 5.2).
function frame(text) {
  const payload = Buffer.from(text);
  const mask = crypto.randomBytes(4);
  const head = Buffer.alloc(payload.length < 126 ? 2 : 4);
  head[0] = 0x81;
  if (payload.length < 126) head[1] = 0x80 | payload.length;
  else { head[1] = 0x80 | 126; head.writeUInt16BE(payload.length, 2); }
  for (let i = 0; i < payload.length; i++) payload[i] ^= mask[i % 4];
  return Buffer.concat([head, mask, payload]);
}

// The text of the first frame, and the bytes behind it; null if it is not whole.
function parsed(bytes) {
  if (bytes.length < 2) return null;
  let [at, length] = [2, bytes[1] & 0x7f];
  if (length === 126) {
    if (bytes.length < 4) return null;
    [at, length] = [4, bytes.readUInt16BE(2)];
  }
  if (bytes.length < at + length) return null;
  return [bytes.subarray(at, at + length).toString(), bytes.subarray(at + length)];
}

function closed(why) {
  if (stopping) return;
  counts.closed++;
  console.error('node http2:', why);
}

function talk(stream, i) {
  let [k, sent, received] = [0, '', Buffer.alloc(0)];
  const next = () => {
    if (stopping) return;
    sent = `${i}:${k}:` + 'y'.repeat(k * 797 % 5000);
    k++;
    stream.write(frame(sent));
  };
  stream.on('data', (bytes) => {
    received = Buffer.concat([received, bytes]);
    const frame = parsed(received);
    if (!frame) return;
    received = frame[1];
    counts[frame[0] === sent ? 'messages' : 'wrong']++;
    setTimeout(next, 200);
  });
  next();
}

for (let first = 0; first < sessions; first += PER_CONNECTION) {
  const client = http2.connect(url.origin, { rejectUnauthorized: false });
  client.on('error', (error) => closed(error));
  client.on('goaway', () => { if (!stopping) counts.goaways++; });
  client.on('remoteSettings', (settings) => {
    if (!settings.enableConnectProtocol || client.begun) return;
    client.begun = true;
    for (let i = first; i < Math.min(first + PER_CONNECTION, sessions); i++) {
      const stream = client.request({
        ':method': 'CONNECT', ':protocol': 'websocket', ':path': url.pathname,
        'sec-websocket-version': '13',
      });
      stream.on('error', (error) => closed(error));
      stream.on('close', () => closed(`session ${i} was closed`));
      stream.on('response', (head) => {
        if (head[':status'] !== 200) return closed(`status ${head[':status']}`);
        talk(stream, i);
        if (++opened === sessions) console.log('ready');
      });
    }
  });
}

process.on('SIGTERM', () => {
  stopping = true;
  console.log(JSON.stringify(counts));
  process.exit(0);
});
