// Looks at the pages as a browser shows them: wide and narrow, light and dark, and printed.
// Needs Chromium (CHROMIUM names it, else /usr/bin/chromium) and a built program (GPULEDGER names it).
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdirSync } from 'node:fs';
import { chromium } from 'playwright-core';

const require = createRequire(import.meta.url);
const axe = require.resolve('axe-core/axe.min.js');
const program = process.env.GPULEDGER ?? new URL('../../target/debug/gpuledger', import.meta.url).pathname;
const pictures = process.env.PICTURES;
if (pictures) mkdirSync(pictures, { recursive: true });
let passed = 0;
let failed = 0;

function check(what, problems) {
  if (problems.length === 0) {
    passed += 1;
  } else {
    failed += 1;
    console.error(`${what}:\n  ${problems.join('\n  ')}`);
  }
}

// The demonstration, on any free port; its address is in what it prints.
async function serve() {
  const server = spawn(program, ['demo', '--live', '--port', '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const address = await new Promise((resolve, reject) => {
    let printed = '';
    server.stdout.on('data', (data) => {
      printed += data;
      const found = printed.match(/(http:\/\/127\.0\.0\.1:\d+)\/live/);
      if (found) resolve(found[1]);
    });
    server.on('exit', (code) => reject(new Error(`the demonstration ended with ${code}\n${printed}`)));
  });
  return { server, address };
}

const pages = ['/statements', '/statements/ST-2017-10-0023', '/statements/ST-2017-09-0001'];
const views = [
  { name: 'wide-light', width: 1440, height: 1000, colorScheme: 'light' },
  { name: 'wide-dark', width: 1440, height: 1000, colorScheme: 'dark' },
  { name: 'narrow-light', width: 390, height: 844, colorScheme: 'light' },
  { name: 'narrowest', width: 320, height: 640, colorScheme: 'dark' },
];

async function look(browser, address, path, view) {
  const name = `${path} ${view.name}`;
  const context = await browser.newContext({ viewport: view, colorScheme: view.colorScheme, bypassCSP: false });
  const page = await context.newPage();
  const violations = [];
  page.on('console', (message) => message.type() === 'error' && violations.push(message.text()));
  page.on('requestfailed', (request) => violations.push(`failed: ${request.url()}`));
  page.on('request', (request) => request.url().startsWith(address) || violations.push(`foreign: ${request.url()}`));
  await page.goto(address + path, { waitUntil: 'networkidle' });
  check(`${name}: content policy, requests`, violations);
  const font = await page.evaluate(async () => { await document.fonts.ready; return document.fonts.check('13px Inter'); });
  check(`${name}: font`, font ? [] : ['Inter is not loaded']);
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  check(`${name}: no sideways scrolling`, width > view.width ? [`the page is ${width} wide`] : []);
  if (pictures) await page.screenshot({ path: `${pictures}/${name.replace(/[^a-z0-9-]+/gi, '_')}.png`, fullPage: true });
  await context.close();

  // axe must be put into the page, which the policy forbids; so once more without it.
  const open = await browser.newContext({ viewport: view, colorScheme: view.colorScheme, bypassCSP: true });
  const again = await open.newPage();
  await again.goto(address + path);
  await again.addScriptTag({ path: axe });
  const result = await again.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  check(`${name}: axe`, result.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.target.join(' ')).join(', ')}`));
  await open.close();
}

// A table's printed column must sum to its printed total, as a reader with a pencil would find.
async function add(browser, address, path) {
  const page = await browser.newPage();
  await page.goto(address + path);
  const problems = await page.evaluate(() => {
    const cents = (cell) => Math.round(Number(cell.textContent.replace(/[^\d.−-]/g, '').replace('−', '-')) * 100);
    const wrong = [];
    for (const table of document.querySelectorAll('table')) {
      const total = table.querySelector('tfoot tr.sum');
      const rows = [...table.querySelectorAll('tbody tr:not(.group)')];
      if (!total || rows.length === 0) continue;
      const last = total.children.length - 1;
      for (const column of [last, last - 1]) {
        const cell = total.children[column];
        if (column === 0 || !cell || !/\d/.test(cell.textContent)) continue;
        const sum = rows.reduce((sum, row) => sum + (cents(row.children[column]) || 0), 0);
        if (sum !== cents(cell)) wrong.push(`${table.caption?.textContent}: column ${column} adds to ${sum / 100}, its total says ${cell.textContent}`);
      }
    }
    return wrong;
  });
  check(`${path}: columns add up`, problems);
  await page.close();
}

async function print(browser, address, path) {
  const page = await browser.newPage();
  await page.goto(address + path);
  const pdf = await page.pdf({ preferCSSPageSize: true, printBackground: true, path: pictures && `${pictures}/statement.pdf` });
  const count = pdf.toString('latin1').match(/\/Type\s*\/Page[^s]/g)?.length ?? 0;
  check(`${path}: prints on two pages`, count === 2 ? [] : [`it prints on ${count}`]);
  await page.close();
}

// The page of the scripted node moves by itself until it is told to pause, and goes on when it is told to.
async function move(browser, address) {
  const page = await browser.newPage();
  const told = () => page.locator('#now .sentence').first().textContent();
  const moves = async () => {
    const before = await told();
    for (let tries = 0; tries < 40; tries += 1) {
      await page.waitForTimeout(250);
      if ((await told()) !== before) return true;
    }
    return false;
  };
  await page.goto(`${address}/live`);
  await page.waitForFunction(() => document.querySelector("#now svg"), null, { timeout: 20000 });
  check('/live: moves', (await moves()) ? [] : ['nothing changed in ten seconds']);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.waitForTimeout(2500);
  check('/live: pauses', (await moves()) ? ['it moved though it was paused'] : []);
  await page.getByRole('button', { name: 'Go on' }).click();
  check('/live: goes on', (await moves()) ? [] : ['nothing changed in ten seconds']);
  await page.close();
}

const { server, address } = await serve();
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
try {
  for (const path of pages) {
    for (const view of views) await look(browser, address, path, view);
    await add(browser, address, path);
  }
  await print(browser, address, pages[1]);
  await move(browser, address);
  for (const view of views) await look(browser, address, '/live', view);
} finally {
  await browser.close();
  server.removeAllListeners('exit');
  server.kill();
}
console.log(`browser: ${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
