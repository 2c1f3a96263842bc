// Sessions of `ws`: client.js URL SESSIONS. Prints `ready`, and the events at SIGTERM.
const WebSocket = require('ws');

const [url, sessions] = [process.argv[2], Number(process.argv[3])];
const v12 = ['ECDHE-ECDSA-AES128-GCM-SHA256', 'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305'].map((ciphers) => ({ ciphers, maxVersion: 'TLSv1.2' }));
const v13 = ['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256']
  .map((ciphers) => ({ ciphers, minVersion: 'TLSv1.3' }));
const kinds = [...v12, ...v13];
const counts = { sessions, messages: 0, wrong: 0, closed: 0, suites: {} };
let [opened, ends] = [0, false];

function open(i) {
  const ws = new WebSocket(url, { rejectUnauthorized: false, ...kinds[i % kinds.length] });
  let [k, waiting, timer] = [0, null, null];
  ws.on('open', () => {
    const suite = ws._socket.getCipher().standardName;
    counts.suites[suite] = (counts.suites[suite] ?? 0) + 1;
    opened += 1;
    if (opened === sessions) console.log('ready');
    else if (opened + 50 <= sessions) open(opened + 49);
    timer = setInterval(() => {
      if (waiting !== null) return;
      waiting = `${i}:${k}:` + 'x'.repeat((k * 797) % 3000);
      k += 1;
      ws.send(waiting);
    }, 500);
  });
  ws.on('message', (message) => {
    counts[message.toString() === waiting ? 'messages' : 'wrong'] += 1;
    waiting = null;
  });
  ws.on('close', () => {
    clearInterval(timer);
    if (!ends) counts.closed += 1;
  });
  ws.on('error', (error) => console.error('ws:', error.message));
}

for (let i = 0; i < Math.min(50, sessions); i += 1) open(i);
process.on('SIGTERM', () => {
  ends = true;
  console.log(JSON.stringify(counts));
  process.exit(0);
});
