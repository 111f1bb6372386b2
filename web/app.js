document.body.textContent = "foldspace";
