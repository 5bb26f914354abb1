// Shows the page anew every two seconds, where the reader is, until told to pause. Without this script, reload the page.
const region = document.getElementById('now');
const button = document.getElementById('pause');
let paused = false;
button.hidden = false;
button.addEventListener('click', () => {
  paused = !paused;
  button.textContent = paused ? 'Go on' : 'Pause';
  button.setAttribute('aria-pressed', String(paused));
});
setInterval(async () => {
  if (paused || document.hidden || region.contains(document.activeElement)) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: 'text/html' } });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    region.replaceChildren(...page.getElementById('now').childNodes);
  } catch {
    // The service is gone; what was seen last stays.
  }
}, 2000);
