"use strict";
(() => {
  // The slider over the history: every version is in the page already, one of them is shown.
  for (const box of document.querySelectorAll(".timeline")) {
    const moments = [...box.querySelectorAll(".moment")];
    const slider = box.querySelector("input");
    const output = box.querySelector("output");
    const [earlier, later] = box.querySelectorAll("button");
    const show = (at) => {
      const place = Math.max(0, Math.min(moments.length - 1, at));
      moments.forEach((moment, i) => { moment.hidden = i !== place; });
      slider.value = String(place);
      output.textContent = moments[place].dataset.label;
      slider.setAttribute("aria-valuetext", output.textContent);
      earlier.disabled = place === 0;
      later.disabled = place === moments.length - 1;
    };
    slider.addEventListener("input", () => show(Number(slider.value)));
    earlier.addEventListener("click", () => show(Number(slider.value) - 1));
    later.addEventListener("click", () => show(Number(slider.value) + 1));
    box.querySelector(".controls").hidden = moments.length < 2;
    show(moments.length - 1);
  }

  // A map tells about the piece under the pointer, or the one that the arrow keys are on.
  for (const map of document.querySelectorAll(".map")) {
    const pieces = [...map.querySelectorAll(".region")];
    const readout = map.querySelector(".readout");
    let current = null;
    const choose = (piece) => {
      if (current) { current.classList.remove("current"); }
      current = piece;
      piece.classList.add("current");
      readout.textContent = piece.querySelector("title").textContent.split("\n").join(" · ");
    };
    map.addEventListener("mouseover", (event) => {
      const piece = event.target.closest(".region");
      if (piece) { choose(piece); }
    });
    map.addEventListener("keydown", (event) => {
      if (!pieces.length) { return; }
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Home") { choose(pieces[0]); }
      else if (event.key === "End") { choose(pieces.at(-1)); }
      else if (step) { choose(pieces[(pieces.indexOf(current) + step + pieces.length) % pieces.length]); }
      else { return; }
      event.preventDefault();
    });
  }
})();
