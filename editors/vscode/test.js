// Runs the client against a program: node test.js PROGRAM
'use strict';

const assert = require('assert');
const { Client } = require('./client.js');

async function main() {
  const notices = [];
  let ended;
  const end = new Promise((resolve) => { ended = resolve; });
  const client = new Client(process.argv[2], ['lsp'], (m, p) => notices.push([m, p]), ended);
  const abilities = await client.initialize();
  assert.ok(abilities.documentFormattingProvider);
  const uri = 'untitled:1';
  const text = 'map $a $b {\n"\u20ac" 1; }\nerror_log off;\n';
  client.notify('textDocument/didOpen', {
    textDocument: { uri, languageId: 'nginx', version: 1, text },
  });
  const textDocument = { uri };
  // Several questions at once: each answer finds its question.
  const [symbols, edits] = await Promise.all([
    client.request('textDocument/documentSymbol', { textDocument }),
    client.request('textDocument/formatting', { textDocument }),
  ]);
  assert.strictEqual(symbols[0].name, 'map $a $b');
  assert.strictEqual(edits[0].newText, 'map $a $b {\n    "\u20ac" 1;\n}\nerror_log off;\n');
  assert.strictEqual(notices[0][0], 'textDocument/publishDiagnostics');
  await assert.rejects(client.request('no/such', {}), /not known/);
  await client.stop();
  await end;
  await assert.rejects(client.request('shutdown', null), /does not run/);
  const missing = new Client('/no/such/weir', ['lsp'], () => {}, () => {});
  await assert.rejects(missing.initialize(), /ENOENT/);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
