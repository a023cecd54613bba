"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  // The slider over the history: every version is in the page already, one of them is shown.
  for (const box of document.querySelectorAll(".timeline")) {
    const moments = [...box.querySelectorAll(".moment")];
    const slider = box.querySelector("input");
    const output = box.querySelector("output");
    const [earlier, later] = box.querySelectorAll("button");
    const labels = data.arrays[Number(box.dataset.array)].moments.map((moment) => moment.label);
    const show = (at) => {
      const place = Math.max(0, Math.min(moments.length - 1, at));
      moments.forEach((moment, i) => { moment.hidden = i !== place; });
      slider.value = String(place);
      slider.setAttribute("aria-valuetext", labels[place]);
      output.textContent = labels[place];
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
    const cells = map.dataset.heat === undefined ? null : data.arrays[Number(map.dataset.heat)].heat;
    let current = -1;
    const words = (piece) => (cells ? cells[Number(piece.dataset.cell)] : piece.querySelector("title").textContent);
    const choose = (i) => {
      if (current >= 0) { pieces[current].classList.remove("current"); }
      current = i;
      pieces[i].classList.add("current");
      readout.textContent = words(pieces[i]).split("\n").join(" · ");
    };
    map.addEventListener("mouseover", (event) => {
      const piece = event.target.closest(".region");
      if (piece) { choose(pieces.indexOf(piece)); }
    });
    map.addEventListener("keydown", (event) => {
      if (!pieces.length) { return; }
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Home") { choose(0); }
      else if (event.key === "End") { choose(pieces.length - 1); }
      else if (step) { choose((current + step + pieces.length) % pieces.length); }
      else { return; }
      event.preventDefault();
    });
  }
})();
