// The extension: starts `weir lsp` and joins it to the editor. No other package is needed.
'use strict';

const vscode = require('vscode');
const { Client } = require('./client.js');

const LANGUAGE = 'nginx';
const SELECTOR = [{ language: LANGUAGE }];

let client;
let diagnostics;
let output;

// Conversions between the editor's values and those of the protocol.
const toPosition = (p) => new vscode.Position(p.line, p.character);
const toRange = (r) => new vscode.Range(toPosition(r.start), toPosition(r.end));
const toUri = (text) => vscode.Uri.parse(text);
const toLocation = (l) => new vscode.Location(toUri(l.uri), toRange(l.range));
const toEdit = (e) => new vscode.TextEdit(toRange(e.range), e.newText);
const ofPosition = (p) => ({ line: p.line, character: p.character });
const ofRange = (r) => ({ start: ofPosition(r.start), end: ofPosition(r.end) });
const nameOf = (document) => ({ uri: document.uri.toString() });
const at = (document, position) => ({
  textDocument: nameOf(document),
  position: ofPosition(position),
});

function toWorkspaceEdit(edit) {
  const result = new vscode.WorkspaceEdit();
  for (const [uri, edits] of Object.entries(edit.changes || {})) {
    result.set(toUri(uri), edits.map(toEdit));
  }
  return result;
}

function toSymbol(s) {
  // The protocol counts kinds from 1, the editor from 0.
  const symbol = new vscode.DocumentSymbol(
    s.name, '', s.kind - 1, toRange(s.range), toRange(s.selectionRange));
  symbol.children = s.children.map(toSymbol);
  return symbol;
}

function toDiagnostic(d) {
  const result = new vscode.Diagnostic(toRange(d.range), d.message, d.severity - 1);
  result.source = d.source;
  result.code = d.code;
  return result;
}

function toCompletion(item) {
  const result = new vscode.CompletionItem(item.label, item.kind - 1);
  result.detail = item.detail;
  result.documentation = item.documentation;
  return result;
}

function toAction(action) {
  const kind = vscode.CodeActionKind.Empty.append(action.kind);
  const result = new vscode.CodeAction(action.title, kind);
  result.edit = toWorkspaceEdit(action.edit);
  return result;
}

// A question to the server; nothing where it does not run.
async function ask(method, params) {
  if (!client) return null;
  return client.request(`textDocument/${method}`, params);
}

async function list(method, params, convert) {
  const answer = await ask(method, params);
  return (answer || []).map(convert);
}

function providers() {
  const languages = vscode.languages;
  return [
    languages.registerCompletionItemProvider(SELECTOR, {
      async provideCompletionItems(document, position) {
        const answer = await ask('completion', at(document, position));
        return ((answer && answer.items) || []).map(toCompletion);
      },
    }, '$', '@'),
    languages.registerHoverProvider(SELECTOR, {
      async provideHover(document, position) {
        const answer = await ask('hover', at(document, position));
        return answer && new vscode.Hover(new vscode.MarkdownString(answer.contents.value));
      },
    }),
    languages.registerDefinitionProvider(SELECTOR, {
      provideDefinition: (document, position) =>
        list('definition', at(document, position), toLocation),
    }),
    languages.registerReferenceProvider(SELECTOR, {
      provideReferences: (document, position) =>
        list('references', at(document, position), toLocation),
    }),
    languages.registerRenameProvider(SELECTOR, {
      async provideRenameEdits(document, position, newName) {
        return toWorkspaceEdit(await ask('rename', { ...at(document, position), newName }));
      },
      async prepareRename(document, position) {
        const answer = await ask('prepareRename', at(document, position));
        return { range: toRange(answer.range), placeholder: answer.placeholder };
      },
    }),
    languages.registerDocumentSymbolProvider(SELECTOR, {
      provideDocumentSymbols: (document) =>
        list('documentSymbol', { textDocument: nameOf(document) }, toSymbol),
    }),
    languages.registerDocumentFormattingEditProvider(SELECTOR, {
      provideDocumentFormattingEdits: (document, options) => list('formatting', {
        textDocument: nameOf(document),
        options: { tabSize: options.tabSize, insertSpaces: options.insertSpaces },
      }, toEdit),
    }),
    languages.registerCodeActionsProvider(SELECTOR, {
      provideCodeActions: (document, range) => list('codeAction', {
        textDocument: nameOf(document),
        range: ofRange(range),
        context: { diagnostics: [] },
      }, toAction),
    }, { providedCodeActionKinds: [vscode.CodeActionKind.QuickFix, vscode.CodeActionKind.SourceFixAll] }),
  ];
}

const isOurs = (document) => document.languageId === LANGUAGE;

function opened(document) {
  if (!client || !isOurs(document)) return;
  client.notify('textDocument/didOpen', {
    textDocument: {
      uri: document.uri.toString(),
      languageId: LANGUAGE,
      version: document.version,
      text: document.getText(),
    },
  });
}

function documents() {
  const workspace = vscode.workspace;
  return [
    workspace.onDidOpenTextDocument(opened),
    workspace.onDidChangeTextDocument(({ document }) => {
      if (!client || !isOurs(document)) return;
      client.notify('textDocument/didChange', {
        textDocument: { uri: document.uri.toString(), version: document.version },
        contentChanges: [{ text: document.getText() }],
      });
    }),
    workspace.onDidSaveTextDocument((document) => {
      if (client && isOurs(document)) {
        client.notify('textDocument/didSave', { textDocument: nameOf(document) });
      }
    }),
    workspace.onDidCloseTextDocument((document) => {
      if (client && isOurs(document)) {
        client.notify('textDocument/didClose', { textDocument: nameOf(document) });
      }
    }),
  ];
}

function noticed(method, params) {
  if (method === 'textDocument/publishDiagnostics') {
    diagnostics.set(toUri(params.uri), params.diagnostics.map(toDiagnostic));
  }
}

async function start() {
  const settings = vscode.workspace.getConfiguration('weir');
  const command = settings.get('path') || 'weir';
  const main = settings.get('configuration');
  const started = new Client(command, main ? ['lsp', '-c', main] : ['lsp'], noticed, (reason) => {
    if (client !== started) return;
    client = undefined;
    diagnostics.clear();
    output.appendLine(`${command} lsp: ${reason}`);
    vscode.window.showErrorMessage(`${command} lsp: ${reason} (the setting weir.path names the program)`);
  });
  client = started;
  try {
    await started.initialize();
  } catch (error) {
    // Its end has been reported.
    return;
  }
  vscode.workspace.textDocuments.forEach(opened);
}

async function stop() {
  const running = client;
  client = undefined;
  if (running) await running.stop();
  if (diagnostics) diagnostics.clear();
}

async function activate(context) {
  diagnostics = vscode.languages.createDiagnosticCollection('weir');
  output = vscode.window.createOutputChannel('Weir');
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(
    diagnostics,
    output,
    vscode.commands.registerCommand('weir.restart', restart),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration('weir')) restart();
    }),
    ...providers(),
    ...documents(),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
